"""What does a quality-assurance page look like when something is wrong?

usage: gallery.py [--only NAME] [-o FOLDER] [--smallest]

Simulates 25 fibres of an r camera once for each defect, extracts 300 Angstrom of them and draws the page of --qa.
What -o keeps of each page are the strips of the CCD and the maps, one below the other, as PNG of few colours: with
doc/figures/gallery the pictures of doc/gallery.md. Prints what the extraction itself said: warnings, median chi2pix,
pulls. --smallest draws one page of the tiny camera: to see that this still runs.
"""
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from PIL import Image as Picture

from gpu_extract import ExtractConfig, Frame, extract
from gpu_extract.data import Image
from gpu_extract.figures import qa_page
from gpu_extract.figures.spectra import blurred_truth
from gpu_extract.simulate import Defects, SimConfig, Simulation, simulate

WIDTH, COLOURS = 900, 256
PARTS = (0.0, 0.392), (0.777, 1.0)       # of the page's height: the strips of the CCD, and the maps
GRID = (6580.0, 6860.0, 0.8)      # the border between lower and upper amplifiers lies within it


@dataclass(frozen=True)
class Case:
    """A defect: how the image is simulated, and what is done to it afterwards."""

    sim: dict[str, object]
    change: Callable[[Simulation], Simulation] = lambda made: made


def shifted(made: Simulation) -> Simulation:
    """Given with the PSF of another day: the traces are 0.4 pixels off."""
    return replace(made, psf=replace(made.psf, x=made.psf.x.plus(0.4)))


def overstated(made: Simulation) -> Simulation:
    """An ivar that says the noise were 1.5 times smaller than it is."""
    return with_image(made, replace(made.image, ivar=made.image.ivar * np.float32(2.25)))


def saturated(made: Simulation) -> Simulation:
    """A star near full well, whose brightest pixels are masked and which bleeds along the rows."""
    pix, ivar = made.image.pix.copy(), made.image.ivar.copy()
    brightest = int(np.argmax(np.median(made.expected[2160:2240], axis=0)))
    ivar[2160:2240, brightest - 2:brightest + 3] = 0
    pix[2240:2280, brightest - 2:brightest + 3] += np.linspace(4000, 0, 40, dtype=np.float32)[:, None]
    return with_image(made, replace(made.image, pix=pix, ivar=ivar))


def with_image(made: Simulation, image: Image) -> Simulation:
    """The same frame with another image."""
    return replace(made, image=image)


CASES = {
    "good": Case({}),
    "hidden-cosmics": Case({"defects": Defects(hidden_cosmics=True), "exptime": 400.0}),
    "psf-too-broad": Case({"psf_error": 0.1}),
    "traces-shifted": Case({}, shifted),
    "ivar-too-large": Case({}, overstated),
    "ivar-from-noisy-pixels": Case({"variance": "data"}),
    "many-masked": Case({"defects": Defects(masked_fraction=0.08, bad_columns=200)}),
    "broken-fibres": Case({"defects": Defects(dead_fibres=(6,), broken_fibres=(14, 15))}),
    "dead-amplifier": Case({"defects": Defects(dead_amplifier="C")}),
    "saturated": Case({}, saturated),
    "scattered-light": Case({"scattered": 5.0}),
}


def main() -> int:
    """Draw and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = args.output or Path(folder) / "kept"
        target.mkdir(parents=True, exist_ok=True)
        for name in ["good"] if args.smallest else [args.only] if args.only else list(CASES):
            made, frame = extracted(CASES[name], smallest=args.smallest)
            qa_page(Path(folder) / "page.png", made.image, frame, truth=made.truth, psf=made.psf)
            shrink(Path(folder) / "page.png", target / f"{name}.png")
            print(f"{name:26} {(target / f'{name}.png').stat().st_size / 1e3:5.0f} kB  {said(made, frame)}", flush=True)
    return 0


def extracted(case: Case, *, smallest: bool) -> tuple[Simulation, Frame]:
    """The simulated image of a case and its frame."""
    grid = (6020.0, 6090.0, 0.8) if smallest else GRID
    what = {"camera": "tiny"} if smallest else {"camera": "r0", "nspec": 25, "crop": True}
    made = case.change(simulate(SimConfig(**{**what, "seed": 3, "truth_grid": grid, **case.sim})))
    config = ExtractConfig(wavelength=grid, nspec=10 if smallest else 25, model=True, psferr=0.01, any_psf=True)
    return made, extract(made.image, made.psf, config)


def shrink(page: Path, picture: Path) -> None:
    """Keep the PARTS of a page, smaller and with fewer colours."""
    whole = Picture.open(page).convert("RGB")
    cuts = [whole.crop((0, round(a * whole.height), whole.width, round(b * whole.height))) for a, b in PARTS]
    joined = Picture.new("RGB", (whole.width, sum(cut.height for cut in cuts)), "white")
    for number, cut in enumerate(cuts):
        joined.paste(cut, (0, sum(c.height for c in cuts[:number])))
    small = joined.resize((WIDTH, round(joined.height * WIDTH / joined.width)), Picture.Resampling.LANCZOS)
    small.quantize(COLOURS, Picture.Quantize.FASTOCTREE, dither=Picture.Dither.NONE).save(picture, optimize=True)


def said(made: Simulation, frame: Frame) -> str:
    """What the numbers of the extraction tell, and its warnings."""
    good = (frame.mask == 0) & (frame.ivar > 0)
    truth = np.array([blurred_truth(made.truth, frame, k) for k in range(len(frame.fibres))])
    good[:, :frame.ndiag] = good[:, -frame.ndiag:] = False          # there R lacks columns
    low, middle, high = np.quantile(((frame.flux - truth) * np.sqrt(frame.ivar))[good], (0.16, 0.5, 0.84))
    return "; ".join([f"chi2pix {np.median(frame.chi2pix[good]):.2f}, pulls {middle:+.2f} +- {(high - low) / 2:.2f}, "
                      f"{np.mean(~good):.1%} masked", *frame.notes.get("warnings", ())])


if __name__ == "__main__":
    raise SystemExit(main())
