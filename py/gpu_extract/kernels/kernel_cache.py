"""A cache of compiled kernels with the rules of kernel_store, which replaces numba's own.

numba checks only the file that contains a kernel: after an edit of a helper or a constant elsewhere it uses the old
kernel. It trusts the content of its files, and keeps an index of them that two writers can corrupt.

`install` makes numba use a `KernelCache` for each cached function of this package; functions of other packages keep
numba's. Compilations can be watched: `watchers` are called for each.
"""
import hashlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any

from numba.core import caching, dispatcher, event, sigutils
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from gpu_extract.kernels import kernel_digest
from gpu_extract.kernels.kernel_load import load_kernel
from gpu_extract.kernels.kernel_store import ENDING, Store, places

PACKAGE = "gpu_extract"
_PLAIN = (int, float, str, bool, type(None))
log = logging.getLogger(PACKAGE)
_numbas = caching.FunctionCache

Watcher = Callable[[str], AbstractContextManager[object]]
watchers: list[Watcher] = []     # called with a kernel's name; they return a context for its compilation


turns: list[Any] = []            # a kernel_claims.Claims, if processes share the compiling
_at_first: list[str] = []        # the digest of the imported sources, or empty if unknown


def install() -> None:
    """Use this cache for functions of this package. Call it before the first of them is defined."""
    if vars(dispatcher)["FunctionCache"] is not _cache_of:
        _at_first[:] = _digest()       # now, so that later imports match the digest, see save_overload
        vars(dispatcher)["FunctionCache"] = _cache_of
        event.register("numba:compile", _Listener())


def _digest() -> list[str]:
    try:
        return [kernel_digest.digest()]
    except OSError as error:
        log.warning(f"sources cannot be read ({error}): each process compiles its kernels again")
        return []


@cache
def store() -> Store | None:
    """The store of this process; None: there is none."""
    return Store(_at_first[0], places()) if _at_first else None


def name_of(function: Any, args: Any) -> str:
    """The name of a kernel for these argument types in the cache: a readable part, then a digest of everything."""
    where = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__.replace('.<locals>.kernel', '')}"
    known = constants(function)
    told = f"{function.__module__} {function.__qualname__} {function.__code__.co_firstlineno} {known} {args}"
    short = "".join(f"-{value}" for value in known.values() if isinstance(value, int))
    return f"{where}{short[:60]}.{hashlib.sha256(told.encode()).hexdigest()[:16]}{ENDING}"


def constants(function: Any) -> dict[str, Any]:
    """The values for which a kernel is specialised: those of its closure, all plain."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells}
    for name, value in found.items():
        if not isinstance(value, _PLAIN):
            raise TypeError(f"{function.__qualname__}: {name} is a {type(value).__name__}: only plain values can "
                            "identify a cached kernel")
    return found


class KernelCache(caching._Cache):
    """numba's cache of one function's kernels, in a store."""

    def __init__(self, function: Any, where: Callable[[], Store | None] = store):
        self._function, self._where, self._enabled = function, where, True

    @property
    def cache_path(self) -> str | None:
        kept = self._where()
        return str(kept.folder) if kept and kept.folder else None

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Does nothing: kernels are never removed singly, because those of other sources have other names."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for a signature, None if it must be compiled."""
        kept = self._where()
        if kept is not None and self._enabled:
            name = name_of(self._function, sigutils.normalize_signature(sig)[0])
            content = kept.load(name) or next((each.take(kept, name) for each in turns), None)
            # numba's cache refreshes the context here, always: it loads all that numba can compile, which takes longer
            # than all kernels of a frame. A kernel that is there needs the runtime for its arrays, and no more
            rtsys.initialize(target_context)
            try:
                if content is not None:
                    return load_kernel(target_context, content)
            except Exception as error:      # any error: a kernel that cannot be loaded is compiled
                kept.discard(name, f"it cannot be loaded ({type(error).__name__})")
        target_context.refresh()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a kernel, unless the sources have changed since this process has read them."""
        kept = self._where()
        if kept is None or not self._enabled:
            return
        name = name_of(self._function, sigutils.normalize_signature(sig)[0])
        edited = self._where is store and _digest() != _at_first
        if not (edited or data.library.has_dynamic_globals) and all(lifted.can_cache for lifted in data.lifted):
            kept.save(name, dumps(data._reduce()))
        for each in turns:
            each.release(kept, name)


def _cache_of(function: Any) -> Any:
    return KernelCache(function) if function.__module__.split(".")[0] == PACKAGE else _numbas(function)


def _title(made: Any, args: Any) -> str:
    """The name of a compilation for messages: a kernel's name, or a partial one for a function that is not cached."""
    function = made.py_func
    if isinstance(getattr(made, "_cache", None), KernelCache):
        return name_of(function, args)
    return f"{(function.__module__ or 'made').rpartition('.')[2]}.{function.__qualname__}"


class _Listener(event.Listener):
    """Calls watchers for each compilation that is not part of another one."""

    def __init__(self) -> None:
        self._open: list[ExitStack] = []           # compilations nest, and no two threads compile at once

    def on_start(self, event: Any) -> None:
        self._open.append(ExitStack())
        if len(self._open) == 1:
            for watcher in watchers:
                self._open[0].enter_context(watcher(_title(event.data["dispatcher"], event.data["args"])))

    def on_end(self, event: Any) -> None:
        self._open.pop().close()
        if sys.exc_info()[0] is not None:          # numba 0.68 has event.is_failed the wrong way round
            for each in turns:
                each.give_up()


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Context in which a watcher is called for each compiled kernel."""
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)
