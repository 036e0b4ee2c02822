"""astropy.io.fits without astropy.units: only annotations miss it, and it can be loaded afterwards."""
import subprocess
import sys

import pytest

LIGHT = """
from gpu_extract.io.light_fits import load_fits
load_fits()
assert "astropy.io.fits" in sys.modules and "astropy.units" not in sys.modules
import astropy.utils.data as data
stand_ins = {id(data.Quantity), id(data.UnitBase)}
held = {(module, name) for module, loaded in list(sys.modules.items()) if module.startswith("astropy")
        for name, value in list(vars(loaded).items()) if id(value) in stand_ins}
assert held == {("astropy.utils.data", "Quantity"), ("astropy.utils.data", "UnitBase")}, held
for function in vars(data).values():
    if hasattr(function, "__code__"):
        used = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
        assert not {"Quantity", "UnitBase"} & used, function
from astropy import units
from astropy.table import QTable
assert QTable({"a": [1, 2] * units.km})["a"].to_value("m").tolist() == [1000, 2000]
assert data.get_free_space_in_dir(".", unit=units.GB) > -1 * units.GB
"""
OTHER_VERSION = """
import gpu_extract.io.light_fits as light
light.TESTED = ("0.",)
light.load_fits()
from astropy.io import fits
from astropy.units import Quantity
import astropy.utils.data
assert getattr(astropy.utils.data, "Quantity", Quantity) is Quantity        # before 8.0 it has none
"""


@pytest.mark.parametrize("code", [LIGHT, OTHER_VERSION], ids=["light", "another version"])
def test_astropy_misses_nothing(code: str) -> None:
    import astropy

    from gpu_extract.io.light_fits import TESTED

    if code is LIGHT and not astropy.__version__.startswith(TESTED):
        pytest.skip(f"astropy {astropy.__version__} is imported as it is")
    done = subprocess.run([sys.executable, "-c", f"import dis, sys\n{code}"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
