"""Machine code of our kernels: one LLVM module for a kernel and everything that it calls.

numba makes a library of each function, optimises it twice, makes machine code of it and of two wrappers, and repeats
this in every caller. Here a function that compiled code calls (`Part`) stays unoptimised, and a kernel (`Whole`), which
Python calls, includes all its parts and is optimised once. Sums are bitwise the same: LLVM never changes the order of
floating-point operations.
"""
from collections.abc import Iterable
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, codegen, funcdesc, imputils
from numba.core.compiler import _LowerResult
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.runtime import rtsys

from gpu_extract.kernels.compile_text import Lower

WITHOUT_LOOPS: set[Any] = set()     # kernels in which LLVM does not search for loops to vectorise
_MEMORY = "NRT_"               # prefix of the names of numba's memory management


class Part(codegen.JITCodeLibrary):
    """A function that compiled code calls: unoptimised modules, and what they call."""

    def __init__(self, made_by: Any, name: str):
        codegen.CodeLibrary.__init__(self, made_by, name)
        self._linking_libraries: list[Any] = []
        self._shared_module = None
        self.modules: list[Any] = []
        self.environment: Any = None

    def add_ir_module(self, ir_module: Any) -> None:
        """Keep a module. Its functions are dropped if all calls of them are inlined."""
        for function in ir_module.functions:
            if function.blocks and function.linkage in ("", "external"):
                function.linkage = "linkonce_odr"
        parsed = binding.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        parsed.name, parsed.data_layout = ir_module.name, self._codegen._data_layout
        self.modules.append(parsed)

    def finalize(self) -> None:
        """No machine code is made yet."""
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """For functions that numba compiles in its own way."""
        if self._shared_module is None:
            self._shared_module = self.modules[0].clone()
            take_in(self._shared_module, [self])
        return self._shared_module


def take_in(module: Any, libraries: Iterable[Any]) -> list[Part]:
    """Link everything that is called, directly or not, into a module; numba's memory management only if it is used."""
    found = list(_all_of(libraries, {}))
    parts = [library for library in found if isinstance(library, Part)]
    for library in found:
        if isinstance(library, Part):
            for own in library.modules:
                module.link_in(own, preserve=True)      # only functions called so far: callers come first
        elif library is not rtsys.library:
            module.link_in(library._get_module_for_linking(), preserve=True)
    if any(function.name.startswith(_MEMORY) for function in module.functions):
        module.link_in(rtsys.library._get_module_for_linking(), preserve=True)
    return parts


def _all_of(libraries: Iterable[Any], found: dict[Any, None]) -> dict[Any, None]:
    for library in libraries:
        if library not in found:
            found[library] = None
            if isinstance(library, Part):
                _all_of(library._linking_libraries, found)
    return found


class Whole(codegen.JITCodeLibrary):
    """A kernel, its wrapper for Python and everything that it calls."""

    loops = True

    def add_llvm_module(self, ll_module: Any) -> None:
        """Include a module unchanged."""
        ll_module.data_layout = self._codegen._data_layout
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        """Make machine code of everything at once."""
        self._raise_if_finalized()
        self.parts = take_in(self._final_module, self._linking_libraries)
        for part in self.parts:
            self._reload_init.update(part._reload_init)
        passes, builder = self._codegen._module_pass_manager(**({} if self.loops else {"loop_vectorize": False}))
        passes.run(self._final_module, builder)
        self._final_module.verify()
        self._finalize_final_module()

    def set_environments(self) -> None:
        """Set the environments that parts need to raise numba's errors."""
        left = {variable.name for variable in self._final_module.global_variables}
        for part in self.parts:
            if part.environment and part.environment[0] in left:
                self._codegen.set_env(*part.environment)


def _cannot_fail(function: Any) -> bool:
    """Whether all ways out of a function return 0: no error."""
    ends = [block.terminator for block in function.blocks]
    return all(getattr(end.operands[0], "constant", None) == 0 for end in ends if end.opname == "ret")


def _plain_call(fndesc: Any, library: Part) -> Any:
    """The code that calls a part that cannot fail, without a test for errors."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function, convention = context.declare_function(builder.module, fndesc), context.call_conv
        kind = convention._get_return_argument(function).type.pointee
        place = cgutils.alloca_once(builder, kind)
        builder.store(ir.Constant(kind, None), place)
        no_error = ir.Constant(convention._get_excinfo_argument(function).type, None)
        given = context.get_arg_packer(fndesc.argtypes).as_arguments(builder, args)
        builder.call(function, [place, no_error, *given])
        value = context.get_returned_value(builder, fndesc.restype, builder.load(place))
        return imputils.impl_ret_new_ref(context, builder, fndesc.restype, value)
    code.signature, code.libs = fndesc.argtypes, (library,)     # type: ignore[attr-defined]
    return code


def _lowered(state: Any, library: Any) -> tuple[Any, Any]:
    """Write a function into a library; returns its description and the writer."""
    context, flags = state.targetctx, state.flags
    state.library = library
    library.enable_object_caching()
    library._reload_init.update(state.reload_init)
    fndesc = funcdesc.PythonFunctionDescriptor.from_specialized_function(
        state.func_ir, state.typemap, state.return_type, state.calltypes, mangler=context.mangler,
        inline=flags.forceinline, noalias=flags.noalias, abi_tags=[flags.get_mangle_string()])
    with context.push_code_library(library):
        writer = Lower(context, library, fndesc, state.func_ir, metadata=state.metadata)
        writer.lower()
        if isinstance(library, Whole):
            writer.create_cpython_wrapper(flags.release_gil)
    return fndesc, writer


class _Lowering(LoweringPass):
    """Write a function into a library."""

    library: Any

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        fndesc, writer = _lowered(state, library)
        entry = self.enter(state, fndesc, writer)
        state.reload_init.extend(library._reload_init)
        state["cr"] = _LowerResult(fndesc, writer.call_helper, cfunc=entry, env=writer.env)
        state.metadata["prune_stats"], state.metadata["llvm_pass_timings"] = None, library.recorded_timings
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerPart(_Lowering):
    """Write a function for its callers."""

    _name, library = "lower_part", Part

    def enter(self, state: Any, fndesc: Any, writer: Any) -> Any:
        context, library = state.targetctx, state.library
        library.environment = context.get_env_name(fndesc), writer.env
        entry = library.finalize            # any callable: it stands for the function, and is never called
        if _cannot_fail(writer.function):
            call = _plain_call(fndesc, library)
            context._defns[entry].append(call, call.signature)
        else:
            context.insert_user_function(entry, fndesc, [library])
        return entry


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerWhole(_Lowering):
    """Write a kernel, and make machine code of it and everything that it calls."""

    _name, library = "lower_whole", Whole

    def enter(self, state: Any, fndesc: Any, writer: Any) -> Any:
        context, library = state.targetctx, state.library
        library.loops = state.func_id.func not in WITHOUT_LOOPS
        entry = context.get_executable(library, fndesc, writer.env)
        library.set_environments()
        context.insert_user_function(entry, fndesc, [library])
        return entry
