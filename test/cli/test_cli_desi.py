"""The extraction as desi_proc calls it: desispec's arguments, an existing communicator, desispec's outputs."""
import ast
import inspect
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from astropy.io import fits

from gpu_extract.cli.desi import main_gpu_specter, words_of
from gpu_extract.errors import InputError
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import write_psf
from gpu_extract.simulate import SimConfig, simulate
from mpi_launch import launch

ROOT = Path(__file__).resolve().parents[2]
GRID = "6020.0,6060.0,0.85"
# what desispec 0.70 sets without options
DEFAULTS = {"fibermap": None, "model": None, "wavelength": None, "specmin": 0, "nspec": None, "regularize": 0.0,
            "bundlesize": 25, "nsubbundles": 5, "nwavestep": 50, "verbose": False, "mpi": False,
            "decorrelate_fibers": False, "no_scores": False, "psferr": None, "barycentric_correction": False,
            "use_specter": False, "no_gpu": False, "pixpad_frac": 0.8, "wavepad_frac": 0.2}
# as desi_proc: ranks are split into groups; each takes cameras in turn and continues if one fails
DRIVER = """
import sys
from argparse import Namespace
from importlib.util import find_spec
from mpi4py import MPI
from gpu_extract.cli.desi import main_gpu_specter

folder, defaults = sys.argv[1], eval(sys.argv[2])
world = MPI.COMM_WORLD
group = world.rank // 2
comm = world.Split(color=group)
failed = 0
for number in range(group, 3, world.size // 2):
    names = {"input": f"{folder}/image.fits", "psf": f"{folder}/" + ("psf.fits" if number != 1 else "none.fits"),
             "output": f"{folder}/frame-{number}.fits"}
    timing = {}
    try:
        main_gpu_specter(Namespace(**{**defaults, **names}), comm=comm, timing=timing)
        times = [timing["frame-" + step] for step in ("start", "setup", "extract", "write")]
        assert times == sorted(times) and len(timing) == 4, timing
    except Exception as error:
        print(f"rank {world.rank}: {type(error).__name__}: {error}", flush=True)
        failed += 1
world.barrier()
assert world.allreduce(failed) == 2
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An image, and its PSF as left by a shift of traces."""
    folder = tmp_path_factory.mktemp("desi")
    made = simulate(SimConfig(camera="tiny", seed=4))
    write_image(folder / "image.fits", made.image, mask=made.mask)
    write_psf(folder / "psf.fits", made.psf)
    with fits.open(folder / "psf.fits", mode="update") as hdus:
        hdus["PSF"].header["IN_PSF"] = "SPECPROD/calibnight/psf-r0.fits"
        for hdu in hdus:
            hdu.add_checksum()
    return folder


def arguments(folder, output, **more):
    return Namespace(**{**DEFAULTS, "input": str(folder / "image.fits"), "psf": str(folder / "psf.fits"),
                        "output": str(output), "wavelength": GRID, "no_gpu": True, **more})


def sums(path):
    with fits.open(path) as hdus:
        return {hdu.name: hdu.header["DATASUM"] for hdu in hdus}


def test_without_mpi_it_is_the_command(files, tmp_path):
    main_gpu_specter(arguments(files, tmp_path / "a.fits", model=str(tmp_path / "model.fits"), specmin=5, nspec=5))
    done = subprocess.run([sys.executable, str(ROOT / "bin" / "gpu_extract"), "-i", files / "image.fits", "-p",
                           files / "psf.fits", "-o", tmp_path / "b.fits", "-w", GRID, "-s", "5", "-n", "5"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "a.fits") == sums(tmp_path / "b.fits") and (tmp_path / "model.fits").exists()
    header = fits.getheader(tmp_path / "a.fits")
    assert header["ORIG_PSF"] == "SPECPROD/calibnight/psf-r0.fits" and header["IN_PSF"].endswith("psf.fits")


def test_errors_are_raised(files, tmp_path):
    with pytest.raises(InputError, match=r"none\.fits"):
        main_gpu_specter(arguments(files, tmp_path / "a.fits", psf="none.fits"))
    with pytest.raises(InputError, match="decorrelate_fibers"):
        main_gpu_specter(arguments(files, tmp_path / "a.fits", decorrelate_fibers=True))
    assert list(tmp_path.iterdir()) == []


def test_groups_of_ranks_as_desi_proc_has_them(files, tmp_path):
    """Four ranks, two groups, three cameras, one of which fails on both of its ranks; the others have the same sums."""
    done = launch(4, "-c", DRIVER, files, repr({**DEFAULTS, "wavelength": GRID, "no_gpu": True}))
    assert done.code == 0, done.out + done.err
    assert done.out.count("InputError: ") == 2 and "none.fits" in done.out
    assert sums(files / "frame-0.fits") == sums(files / "frame-2.fits")
    assert not (files / "frame-1.fits").exists()
    main_gpu_specter(arguments(files, tmp_path / "alone.fits"))
    assert sums(files / "frame-0.fits") == sums(tmp_path / "alone.fits")


def test_the_arguments_are_those_of_desispec(monkeypatch):
    """desispec's module imports specter, which is not installed; its parser works without."""
    pytest.importorskip("desispec", reason="desispec is not installed")
    absent = find_spec("specter") is None
    for name, content in (("specter", None), ("specter.psf", "load_psf"), ("specter.extract", "ex2d")):
        if absent:
            module = ModuleType(name)
            vars(module)[content or "__version__"] = ""
            monkeypatch.setitem(sys.modules, name, module)
    from desispec.scripts.extract import parse

    given = vars(parse(["-i", "i", "-p", "p", "-o", "o"]))
    assert given == {**DEFAULTS, "input": "i", "psf": "p", "output": "o"}
    words = ["-i", "i", "-p", "p", "-o", "o", "-f", "f", "-m", "m", "-w", "1,2,3", "-s", "1", "-n", "2", "-r", "0.5",
             "--bundlesize", "5", "--psferr", "0.1", "--no-scores", "--barycentric-correction", "--no-gpu"]
    assert words_of(parse(words)) == words


PATCH = re.search(r"```diff\n(.*?)```", (ROOT / "doc" / "homes.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_patch_is_a_whole_one(tmp_path):
    """Hunks have as many lines as their heads state; the patch applies to what it was made from, its own lines."""
    assert PATCH is not None
    for old, new, body in re.findall(r"^@@ -\d+,(\d+) \+\d+,(\d+) @@\n((?:[ +-].*\n)+)", PATCH[1], re.MULTILINE):
        lines = [line[0] for line in body.splitlines()]
        assert (len(lines) - lines.count("+"), len(lines) - lines.count("-")) == (int(old), int(new))
    called = re.findall(r"^\+\s+gpu_extract\.cli\.desi\.main_gpu_specter(\(.*\))$", PATCH[1], re.MULTILINE)
    assert called == ["(extract_args, comm=comm_extract)"] * 2
    inspect.signature(main_gpu_specter).bind("extract_args", comm="comm_extract")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("desispec") is None or shutil.which("patch") is None, reason="needs desispec and patch")
def test_the_patch_applies_to_desispec(tmp_path):
    """Without fuzz, to the installed version: both extractions without specter are then ours; it is Python."""
    spec = find_spec("desispec")
    assert spec is not None and spec.origin is not None and PATCH is not None
    (tmp_path / "desispec" / "scripts").mkdir(parents=True)
    proc = tmp_path / "desispec" / "scripts" / "proc.py"
    shutil.copy(Path(spec.origin).parent / "scripts" / "proc.py", proc)
    done = subprocess.run(["patch", "-p0", "--fuzz=0"], input=PATCH[1], text=True, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = [ast.unparse(node) for node in ast.walk(ast.parse(proc.read_text(encoding="utf-8")))
             if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("main_gpu_specter")]
    assert calls == ["gpu_extract.cli.desi.main_gpu_specter(extract_args, comm=comm_extract)"] * 2
