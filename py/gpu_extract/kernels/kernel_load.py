"""A kernel from what was kept of it, without what only compiling needs.

Beside its machine code a kernel is kept as LLVM's bitcode, for other kernels that are compiled with it. numba parses
that whenever it loads a kernel, and asks LLVM for the name of everything in it: three quarters of the time. Here that
is put off until a kernel is compiled that calls this one. What numba imports for a kernel, the module of each of its
functions, is not imported: only code in numba's object mode looks into it, and numba.np.arraymath alone brings
scipy.linalg, 0.1 s.

Both lean on what numba keeps to itself. With another version than those of TESTED numba's own way is taken.
"""
import io
import pickle
import sys
from functools import cache
from typing import Any

import numba
from numba.core import environment
from numba.core.codegen import ll as binding  # LLVM, as numba has it
from numba.core.compiler import CompileResult

from gpu_extract.kernels.compiled import TESTED


def load_kernel(context: Any, content: bytes) -> Any:
    """The kernel that was pickled. Raises whatever numba and pickle do where it is none."""
    (name, kind, data), described, *rest = _Unpickler(io.BytesIO(content)).load()
    if kind != "object" or not numba.__version__.startswith(TESTED):
        return CompileResult._rebuild(context, (name, kind, data), described, *rest)
    code, bitcode = data
    context.codegen()._engine._defined_symbols |= {
        described.llvm_func_name, described.llvm_cpython_wrapper_name, described.llvm_cfunc_wrapper_name}
    made = CompileResult._rebuild(context, (name, kind, (code, _nothing(context))), described, *rest)
    made.library._get_module_for_linking = cache(lambda: _parsed(context, bitcode))
    return made


def _parsed(context: Any, bitcode: bytes) -> Any:
    """The module to compile others with, all of its names known to the engine as numba has them."""
    module = binding.parse_bitcode(bitcode)
    context.codegen()._engine._load_defined_symbols(module)
    return module


@cache
def _nothing(context: Any) -> bytes:
    """The bitcode of a module without content."""
    return binding.parse_assembly(str(context.codegen()._create_empty_module("nothing"))).as_bitcode()


class _Unpickler(pickle.Unpickler):
    """Reads a kernel without importing what numba imports for it."""

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle names, but for that import."""
        if (module, name) == (environment.__name__, "_rebuild_env"):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, consts: list[Any], name: str) -> Any:
    """A function's environment, with its module where that is loaded anyway."""
    if module in sys.modules:
        return environment._rebuild_env(module, consts, name)
    made = environment.Environment({"__name__": module})
    made.consts[:] = consts
    made.env_name = name
    return made
