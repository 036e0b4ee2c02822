"""numba's njit, made cheap to compile; kernels/compiled.py uses it with tested versions of numba.

Half of numba's time is spent on work that kernels do not need: passes over syntax that they do not use, machine code
and wrappers of functions that only compiled code calls, Python's garbage collection in the compiler's own data. The
generated arithmetic is numba's; compile_parts assembles it.
"""
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import transforms, typed_passes, untyped_passes
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.registry import CPUDispatcher
from numba.core.ssa import reconstruct_ssa
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry

from gpu_extract.kernels.compile_memory import own_contexts
from gpu_extract.kernels.compile_parts import WITHOUT_LOOPS, LowerPart, LowerWhole

_UNUSED = (untyped_passes.WithLifting, untyped_passes.InlineClosureLikes, untyped_passes.RewriteDynamicRaises,
           untyped_passes.MakeFunctionToJitFunction, untyped_passes.FindLiterallyCalls, untyped_passes.LiteralUnroll,
           untyped_passes.LiteralPropagationSubPipelinePass, typed_passes.InlineOverloads,
           typed_passes.NoPythonSupportedFeatureValidation, typed_passes.AnnotateTypes,
           typed_passes.NopythonRewrites, typed_passes.DumpParforDiagnostics)
_ONCE = untyped_passes.DeadBranchPrune      # numba runs it three times
# numba's pass -> ours, without the analysis of variable lifetimes that numba repeats after each pass. Only the
# generation of machine code needs it, and the pass before (`ir_legalization`) makes it once more; generators, which
# need it, are left to numba
SHORTER: dict[type, type] = {}


def _in_place_of(numbas: Any) -> Callable[[Callable[[Any, Any], None]], None]:
    """A decorator of a function that replaces a pass of numba's, except for generators."""
    def decorate(work: Callable[[Any, Any], None]) -> None:
        def run_pass(self: Any, state: Any) -> bool:
            if state.func_id.is_generator:
                return numbas.run_pass(self, state)
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
    """Replace joins by assignments."""
    state.func_ir = numbas._strip_phi_nodes(state.func_ir)
    state.func_ir._definitions = build_definitions(state.func_ir.blocks)


class _Ours(CPU):
    """The CPU, with numba's own Python functions for it compiled as parts as well."""


class _Compiler(CompilerBase):
    """numba's compiler without some of its passes."""

    lower: Any = LowerPart
    unused: tuple[Any, ...] = ()

    def __init__(self, typingctx: Any, targetctx: Any, *args: Any):
        super().__init__(*own_contexts(typingctx, targetctx), *args)
        self.state.targetctx.target = _Ours

    def define_pipelines(self) -> list[PassManager]:
        made, seen = PassManager("gpu_extract"), set()
        for each, why in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if each in self.unused or (self.unused and each is _ONCE and each in seen):
                continue
            seen.add(each)
            made.add_pass(self.lower if each is typed_passes.NativeLowering else SHORTER.get(each, each), why)
        made.finalize()
        return [made]


class _PartCompiler(_Compiler):
    unused = _UNUSED


class _WholeCompiler(_Compiler):
    unused, lower = _UNUSED, LowerWhole


class _Part(CPUDispatcher):
    """A function that kernels call."""

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres      # not for calls from Python

    def compile(self, sig: Any) -> Any:
        known = self.overloads.get(sig) if isinstance(sig, tuple) else None
        return known.entry_point if known else super().compile(sig)


class _Kernel(CPUDispatcher):
    """A kernel, which Python calls; compiled code calls its part."""

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None):      # as numba unpickles it
        super().__init__(py_func, locals, targetoptions, pipeline_class=_WholeCompiler)
        self._part = _Part(py_func, locals, targetoptions, pipeline_class=_PartCompiler)

    def compile(self, sig: Any) -> Any:
        with global_compiler_lock, _no_search_for_garbage():
            return super().compile(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self._part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self._part.get_overload(sig)


@contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Context without garbage collection: the compiler makes millions of objects and little garbage, and collecting it
    takes a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return {"nopython": True, "boundscheck": None, **given}


def _numbas_own(**options: Any) -> Callable[[Any], _Part]:
    """The decorator of numba's own Python functions, in which all syntax is allowed."""
    return lambda function: _Part(function, targetoptions=_options(options), pipeline_class=_Compiler)


jit_registry[_Ours], dispatcher_registry[_Ours] = _numbas_own, CPUDispatcher


def njit(*, cache: bool = False, loops: bool = True, **options: Any) -> Callable[[Any], Any]:
    """numba.njit for kernels and their parts. Other threads of Python may run beside a kernel; a division by zero gives
    infinity, not an error.

    loops: whether LLVM searches for loops to vectorise; False for a kernel whose loops consist of vectors already
    """
    def decorate(function: Any) -> _Kernel:
        made = _Kernel(function, targetoptions=_options({"nogil": True, "error_model": "numpy", **options}))
        if cache:
            made.enable_caching()
        if not loops:
            WITHOUT_LOOPS.add(function)
        return made
    return decorate
