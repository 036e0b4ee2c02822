"""Passes of numba's, without what the next ones do again.

numba finds out after each pass which variables live where. Only what writes the machine code down needs it, and the
pass before that (`ir_legalization`) finds it out once more; generators, which need it, are left to numba.
"""
from collections.abc import Callable
from typing import Any

from numba.core import transforms, typed_passes, untyped_passes
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import build_definitions
from numba.core.ssa import reconstruct_ssa

SHORTER: dict[type, type] = {}      # numba's pass -> ours


def _in_place_of(numbas: Any) -> Callable[[Callable[[Any, Any], None]], None]:
    """The decorator of what is done instead of a pass of numba's, but for generators."""
    def decorate(work: Callable[[Any, Any], None]) -> None:
        def run_pass(self: Any, state: Any) -> bool:
            if state.func_id.is_generator:
                return numbas.run_pass(self, state)      # type: ignore[no-any-return]
            work(self, state)
            return True
        shorter = type(numbas.__name__, (numbas,), {"_name": f"gpu_extract{work.__name__}", "run_pass": run_pass})
        SHORTER[numbas] = register_pass(mutates_CFG=True, analysis_only=False)(shorter)
    return decorate


@_in_place_of(untyped_passes.IRProcessing)
def _processing(numbas: Any, state: Any) -> None:
    """Bring the loops into the form that numba expects."""
    state.func_ir.blocks = transforms.canonicalize_cfg(state.func_ir.blocks)
    state.func_ir.generator_info = None


@_in_place_of(untyped_passes.ReconstructSSA)
def _single_assignment(numbas: Any, state: Any) -> None:
    """Give each assignment a variable of its own."""
    state.func_ir = reconstruct_ssa(state.func_ir)
    numbas._patch_locals(state)
    state.func_ir._definitions = build_definitions(state.func_ir.blocks)


@_in_place_of(typed_passes.PreLowerStripPhis)
def _no_phis(numbas: Any, state: Any) -> None:
    """Make assignments of what was joined."""
    state.func_ir = numbas._strip_phi_nodes(state.func_ir)
    state.func_ir._definitions = build_definitions(state.func_ir.blocks)
