"""Loads a cached kernel, without the parts that only compiling needs.

In addition to its machine code a kernel is stored as LLVM bitcode, for other kernels that are compiled with it. numba
parses this whenever it loads a kernel, and asks LLVM for the name of everything in it, which takes three quarters of
the time. Here parsing is deferred until a kernel that calls this one is compiled. The modules that numba would import
for a kernel, one for each of its functions, are not imported: only code in numba's object mode needs them, and
numba.np.arraymath alone loads scipy.linalg, which takes 0.1 s.

Both depend on internals of numba. Versions other than those of TESTED use numba's own way.
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
    """The pickled kernel. Raises the errors of numba and pickle if it is not one."""
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
    """The module for compiling others, with all of its names registered in the engine as by numba."""
    module = binding.parse_bitcode(bitcode)
    context.codegen()._engine._load_defined_symbols(module)
    return module


@cache
def _nothing(context: Any) -> bytes:
    """The bitcode of a module without content."""
    return binding.parse_assembly(str(context.codegen()._create_empty_module("nothing"))).as_bitcode()


class _Unpickler(pickle.Unpickler):
    """Reads a kernel without numba's imports for it."""

    def find_class(self, module: str, name: str) -> Any:
        """The object named in the pickle, except for that import."""
        if (module, name) == (environment.__name__, "_rebuild_env"):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, consts: list[Any], name: str) -> Any:
    """A function's environment, with its module if that is already loaded."""
    if module in sys.modules:
        return environment._rebuild_env(module, consts, name)
    made = environment.Environment({"__name__": module})
    made.consts[:] = consts
    made.env_name = name
    return made
