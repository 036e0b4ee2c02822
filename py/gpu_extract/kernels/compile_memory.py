"""numba's two contexts, of types and of the machine, with a memory.

numba requests the same facts thousands of times: the type of a sum of two types, the code for it, its size, whether
another library was loaded meanwhile. Here each is determined once.
"""
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

from numba.core import types, typing
from numba.core.cpu import CPUContext

from gpu_extract.kernels.compile_text import Memory, own_code, part_of


class _Lasting:
    """Loads what libraries have registered only if there is more than before."""

    _loaded: tuple[int, ...] | None = None

    def refresh(self) -> None:
        if self._loaded != self._sizes():
            super().refresh()       # type: ignore[misc]
            self._loaded = self._sizes()

    def _sizes(self) -> tuple[int, ...]:
        return tuple(len(part) for registry in self._registries     # type: ignore[attr-defined]
                     for part in vars(registry).values() if isinstance(part, list | dict))


class _Typing(_Lasting, typing.Context):
    """The types of results of numba's functions."""

    def __init__(self) -> None:
        raise NotImplementedError       # it is made of numba's

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if kws or not isinstance(func, types.Function):
            return super().resolve_function_type(func, args, kws)
        key = id(func), *map(id, args)
        known = self._resolved.get(key)
        if known is None:
            known = super().resolve_function_type(func, args, kws), func, args      # kept alive: their ids are the key
            if known[0] is not None:
                self._resolved[key] = known
        return known[0]


class _Context(_Lasting, CPUContext):
    """The representation of types on the machine, and the available code."""

    _known: ClassVar[dict[Any, Any]] = {}
    nrt = property(lambda self: Memory(self, self.enable_nrt))

    def get_abi_sizeof(self, ty: Any) -> int:
        return self._remembered(("size", str(ty)), super().get_abi_sizeof, ty)[0]

    def get_abi_alignment(self, ty: Any) -> int:
        return self._remembered(("alignment", str(ty)), super().get_abi_alignment, ty)[0]

    def is_counted(self, ty: Any) -> bool:
        """Whether numba counts references of a type."""
        return self._remembered(("counted", id(ty)), self._is_counted, ty)[0]

    def _is_counted(self, ty: Any) -> Any:
        return self.data_model_manager[ty].contains_nrt_meminfo()

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        code = own_code(fn, sig)
        if code is not None:
            return _ours_first(self, sig, lambda: super(_Context, self).get_function(fn, sig), code)
        return super().get_function(fn, sig, _firstcall)

    def make_tuple(self, builder: Any, typ: Any, values: Any) -> Any:
        made = super().make_tuple(builder, typ, values)
        made.parts = tuple(values)
        return made

    def pair_first(self, builder: Any, val: Any, ty: Any) -> Any:
        return part_of(builder, val, 0)

    def pair_second(self, builder: Any, val: Any, ty: Any) -> Any:
        return part_of(builder, val, 1)

    def _remembered(self, key: Any, find: Callable[[Any], Any], of: Any) -> Any:
        if key not in self._known:
            self._known[key] = find(of), of     # kept alive: its id may be in the key
        return self._known[key]


def _ours_first(context: Any, signature: Any, numbas: Callable[[], Any], code: Any) -> Any:
    """Our code, if there is any, else numba's."""
    def write(builder: Any, args: Any, loc: Any = None) -> Any:
        made = code(context, builder, signature, args)
        return numbas()(builder, args, loc) if made is None else made
    write.libs = ()         # type: ignore[attr-defined]
    return write


_made: dict[int, tuple[Any, ...]] = {}


def own_contexts(typing_context: Any, target_context: Any) -> tuple[Any, Any]:
    """Our versions of numba's contexts."""
    typing_context = _own(typing_context, _Typing, _resolved={})
    return typing_context, _own(target_context, _Context, typing_context=typing_context)


def _own(context: Any, kind: type, **more: Any) -> Any:
    """A context of our kind with the same data, and more."""
    if isinstance(context, kind):
        return context
    if id(context) not in _made:
        own = copy(context)
        own.__class__ = kind
        vars(own).update(more)
        _made[id(context)] = own, context
    return _made[id(context)][0]
