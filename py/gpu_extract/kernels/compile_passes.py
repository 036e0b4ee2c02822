"""Passes of numba's, without what the next ones do again.

numba finds out after each pass which variables live where. Only what writes the machine code down needs it, and the
pass before that (`ir_legalization`) finds it out once more; generators, which need it, are left to numba.
"""
from typing import Any

from numba.core import transforms, typed_passes, untyped_passes
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import build_definitions
from numba.core.ssa import reconstruct_ssa


@register_pass(mutates_CFG=True, analysis_only=False)
class Processing(untyped_passes.IRProcessing):      # type: ignore[misc]
    """Bring the loops into the form that numba expects."""

    _name = "gpu_extract_processing"

    def run_pass(self, state: Any) -> bool:
        if state.func_id.is_generator:
            return super().run_pass(state)      # type: ignore[no-any-return]
        state.func_ir.blocks = transforms.canonicalize_cfg(state.func_ir.blocks)
        state.func_ir.generator_info = None
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class SingleAssignment(untyped_passes.ReconstructSSA):      # type: ignore[misc]
    """Give each assignment a variable of its own."""

    _name = "gpu_extract_single_assignment"

    def run_pass(self, state: Any) -> bool:
        if state.func_id.is_generator:
            return super().run_pass(state)      # type: ignore[no-any-return]
        state.func_ir = reconstruct_ssa(state.func_ir)
        self._patch_locals(state)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class NoPhis(typed_passes.PreLowerStripPhis):       # type: ignore[misc]
    """Make assignments of what was joined."""

    _name = "gpu_extract_no_phis"

    def run_pass(self, state: Any) -> bool:
        if state.func_id.is_generator:
            return super().run_pass(state)      # type: ignore[no-any-return]
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


SHORTER = {untyped_passes.IRProcessing: Processing, untyped_passes.ReconstructSSA: SingleAssignment,
           typed_passes.PreLowerStripPhis: NoPhis}
