"""astropy.io.fits for programs, without astropy.units, which is half of what it takes to load it.

In the versions of TESTED, astropy.utils.data imports astropy.units for nothing but annotations of two functions that
nobody calls here; nothing else that astropy.io.fits loads does. While it loads, a stand-in takes the place of that
module, and is gone afterwards: a later `import astropy.units` finds the real one. With another version, and in a
process that has a part of astropy already, astropy is imported as it is. So is it by the library: only a program may do
this, before it has threads. And it does so before numba: astropy looks through all that is loaded, many times.
"""
import sys
from types import ModuleType

TESTED = ("8.0.",)       # versions of astropy, by how they begin
_UNITS = "astropy.units"


def load_fits() -> None:
    """Load astropy.io.fits. Every other import of it, here and in astropy, finds it loaded then."""
    if "astropy" in sys.modules:
        return
    import astropy

    if not astropy.__version__.startswith(TESTED) or {_UNITS, "astropy.utils.data"} & sys.modules.keys():
        return
    sys.modules[_UNITS] = module = ModuleType(_UNITS)
    for name in ("Quantity", "UnitBase"):        # what annotations name
        setattr(module, name, type(name, (), {"__module__": _UNITS}))
    try:
        import astropy.io.fits
    finally:
        del sys.modules[_UNITS]
