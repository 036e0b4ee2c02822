"""astropy.io.fits for programs, without astropy.units, which takes half of its loading time.

In the versions of TESTED, astropy.utils.data imports astropy.units only for annotations of two functions that are not
called here; nothing else that astropy.io.fits loads needs it. During loading, a stand-in replaces that module. It is
removed afterwards, so that a later `import astropy.units` finds the real one. With another version, and in a process
that has loaded a part of astropy, astropy is imported normally. The library also imports it normally: only a program
may do this, before it has threads. It does so before loading numba, because astropy scans all loaded modules many
times.
"""
import sys
from types import ModuleType

TESTED = ("8.0.",)       # versions of astropy, by prefix
_UNITS = "astropy.units"


def load_fits() -> None:
    """Load astropy.io.fits. Every later import of it, here and in astropy, finds it loaded."""
    if "astropy" in sys.modules:
        return
    import astropy

    if not astropy.__version__.startswith(TESTED) or {_UNITS, "astropy.utils.data"} & sys.modules.keys():
        return
    sys.modules[_UNITS] = module = ModuleType(_UNITS)
    for name in ("Quantity", "UnitBase"):        # names in annotations
        setattr(module, name, type(name, (), {"__module__": _UNITS}))
    try:
        import astropy.io.fits
    finally:
        del sys.modules[_UNITS]
