"""Random arcs of a small camera with damage of all kinds, through the program `gpu_psf fit`; what must be true of each.

The camera tiny: 192 rows, two bundles of five fibres, sixteen lines. A seed's remainder by the number of kinds chooses
its first damage; up to two more are drawn.
"""
import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from astropy.io import fits
from psf_errors import READ_NOISE, Judge, cold, moved, uneven_lines, whole_gh

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.simulate.frame import project_lines
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.simulate.troubles import broadened
from gpu_extract.spots import centres, select
from gpu_psf.cli.psf import main
from gpu_psf.data import Lines

NFIBRE, NY, NX = 10, 192, 104
BASE = whole_gh(psf_model("tiny"))
PITCH = 0.57                    # Angstrom in a row
SIGMA, TIMES = 1.1, 6.0         # pixels of a spot; standard deviations that a fitted trace may be off
FLOOR, SHAPE_FLOOR = 0.05, 0.01     # pixels; of the peak: errors that no noise makes
SEEN = 1.5                      # pixels: spots that are farther off are not compared pixel by pixel
HIGH, MANY, WRONG = 2.0, 0.1, 0.1   # CHI2, ODD, PSFERR of a bundle from which on it says itself that it is not right


@dataclass
class Scene:
    """What is simulated, and what the fit is told; damages change it.

    share: (NFIBRE,) of the light that a fibre passes; factor: (NY, NX) of the light; glow: electrons beside the lines
    add: electrons put on the pixels after the noise; good: False where masked; told_noise: READNOISE of the image
    shift: of the second arc, pixels, where there is one; lines: given; lamp: real
    list_error: root mean square of what the list's wavelengths are wrong by, Angstrom
    """

    true: PsfModel
    start: PsfModel
    lamp: Lines
    lines: Lines
    random: np.random.Generator
    share: Array
    factor: Array
    glow: Array
    add: Array
    good: np.ndarray
    told_noise: float = READ_NOISE
    shift: tuple[float, float] | None = None
    upside_down: bool = False
    list_error: float = 0.0
    words: list[str] = field(default_factory=list)


Damage = Callable[[Scene], None]


def _off(scene: Scene) -> None:
    scene.start = moved(scene.start, *scene.random.uniform((-3, -8), (3, 8)))


def _far(scene: Scene) -> None:
    scene.start = moved(scene.start, *scene.random.uniform((-12, -40), (12, 40)))


def _bent(scene: Scene) -> None:
    scene.start = cold(scene.true, int(scene.random.integers(1000)), (0.5, -1.0), scene.random.uniform(0.1, 0.6))


def _start_width(scene: Scene) -> None:
    core, width = scene.start.cores[0], scene.random.uniform(0.6, 2.2)
    wide = [replace(series, coeff=series.coeff * width / 1.1) for series in (core.sigma_x, core.sigma_y)]
    scene.start = replace(scene.start, cores=(replace(core, sigma_x=wide[0], sigma_y=wide[1]),))


def _wide_light(scene: Scene) -> None:
    scene.true = broadened(scene.true, scene.random.uniform(-0.3, 0.6))


def _dead_fibres(scene: Scene) -> None:
    scene.share[scene.random.integers(0, NFIBRE, scene.random.integers(1, 4))] = 0.0


def _faint_fibres(scene: Scene) -> None:
    scene.share[scene.random.integers(0, NFIBRE, 3)] = 10 ** scene.random.uniform(-3, -0.5, 3)


def _dead_bundle(scene: Scene) -> None:
    first = 5 * scene.random.integers(2)
    scene.share[first:first + 5] = 0.0


def _part(scene: Scene) -> tuple[slice, slice]:
    """A quarter of the CCD, or less."""
    y, x = scene.random.integers(2, size=2)
    part = scene.random.uniform(0.3, 1.0)
    rows = slice(0, int(part * NY / 2)) if y else slice(NY - int(part * NY / 2), NY)
    return rows, slice(0, NX // 2) if x else slice(NX // 2, NX)


def _masked_amplifier(scene: Scene) -> None:
    scene.good[_part(scene)] = False


def _silent_amplifier(scene: Scene) -> None:
    scene.factor[_part(scene)] = 0.0


def _wrong_gain(scene: Scene) -> None:
    scene.factor[_part(scene)] *= scene.random.uniform(0.3, 2.0)


def _cosmics(scene: Scene) -> None:
    hit = scene.random.random((NY, NX)) < 10 ** scene.random.uniform(-3, -1.3)
    scene.add[hit] += 50 + scene.random.exponential(2000, hit.sum())


def _streaks(scene: Scene) -> None:
    for _ in range(scene.random.integers(1, 12)):
        y, x, angle = scene.random.uniform(0, NY), scene.random.uniform(0, NX), scene.random.uniform(0, np.pi)
        along = np.arange(scene.random.integers(5, 60))
        rows, columns = (y + along * np.sin(angle)).astype(int), (x + along * np.cos(angle)).astype(int)
        on = (rows >= 0) & (rows < NY) & (columns >= 0) & (columns < NX)
        scene.add[rows[on], columns[on]] += scene.random.uniform(200, 5000)


def _hot_columns(scene: Scene) -> None:
    scene.add[:, scene.random.integers(0, NX, scene.random.integers(1, 4))] += scene.random.uniform(20, 5000)


def _hot_rows(scene: Scene) -> None:
    scene.add[scene.random.integers(0, NY, scene.random.integers(1, 4))] += scene.random.uniform(20, 5000)


def _masked_columns(scene: Scene) -> None:
    scene.good[:, scene.random.integers(0, NX, scene.random.integers(1, 12))] = False


def _masked_pixels(scene: Scene) -> None:
    scene.good &= scene.random.random((NY, NX)) > scene.random.uniform(0.05, 0.9)


def _continuum(scene: Scene) -> None:
    wave = np.arange(6000.5, 6109.5, 0.1)
    level = scene.random.uniform(1, 60) * (1 + 0.5 * np.sin(wave / scene.random.uniform(5, 60)))
    light = np.zeros((NY, NX))
    project_lines(light, scene.true, (0, NFIBRE), wave, scene.share[:, np.newaxis] * level)
    scene.glow += light


def _stray_light(scene: Scene) -> None:
    y, x = np.mgrid[:NY, :NX] / NY
    scene.glow += scene.random.uniform(1, 300) * np.exp(-((x - scene.random.random()) ** 2 + (
        y - scene.random.random()) ** 2) / scene.random.uniform(0.05, 2))


def _bias(scene: Scene) -> None:
    scene.add += scene.random.uniform(-300, 1000)


def _weak(scene: Scene) -> None:
    scene.lamp = replace(scene.lamp, strength=scene.lamp.strength * 10 ** scene.random.uniform(-3.5, -1))


def _strong(scene: Scene) -> None:
    scene.lamp = replace(scene.lamp, strength=scene.lamp.strength * 10 ** scene.random.uniform(0.5, 2))


def _saturated(scene: Scene) -> None:
    strength = scene.lamp.strength.copy()
    strength[scene.random.integers(0, len(strength), 4)] *= 50
    scene.lamp = replace(scene.lamp, strength=strength)


def _uneven(scene: Scene) -> None:
    strength = scene.lamp.strength * 10 ** scene.random.uniform(-2, 0.5, len(scene.lamp.wave))
    scene.lamp = replace(scene.lamp, strength=strength)


def _cut(lines: Lines, chosen: np.ndarray) -> Lines:
    return Lines(lines.wave[chosen], lines.strength[chosen])


def _few_lines(scene: Scene) -> None:
    chosen = np.sort(scene.random.choice(len(scene.lamp.wave), scene.random.integers(1, 10), replace=False))
    scene.lamp = scene.lines = _cut(scene.lamp, chosen)


def _unlisted(scene: Scene) -> None:
    scene.lines = _cut(scene.lines, scene.random.random(len(scene.lines.wave)) > scene.random.uniform(0.1, 0.8))


def _missing(scene: Scene) -> None:
    scene.lamp = _cut(scene.lamp, scene.random.random(len(scene.lamp.wave)) > scene.random.uniform(0.1, 0.8))


def _other_list(scene: Scene) -> None:
    count = scene.random.integers(4, 30)
    scene.lines = Lines(np.sort(scene.random.uniform(6003, 6107, count)), np.ones(count))


def _wrong_waves(scene: Scene) -> None:
    wave = scene.lines.wave + scene.random.standard_normal(len(scene.lines.wave)) * scene.random.uniform(0.02, 1.0)
    order = np.argsort(wave)
    scene.list_error = float(np.sqrt(np.mean((wave - scene.lines.wave) ** 2)))
    scene.lines = Lines(wave[order], scene.lines.strength[order])


def _second_arc(scene: Scene) -> None:
    scene.shift = (float(scene.random.uniform(-1.5, 1.5)), float(scene.random.uniform(-1.5, 1.5)))


def _wrong_noise(scene: Scene) -> None:
    scene.told_noise *= 10 ** scene.random.uniform(-0.7, 0.7)


def _upside_down(scene: Scene) -> None:
    scene.upside_down = True


KINDS: dict[str, Damage] = {
    name.strip("_").replace("_", " "): damage for name, damage in globals().copy().items()
    if name.startswith("_") and getattr(damage, "__annotations__", {}) == {"scene": Scene, "return": None}}


def scene_of(seed: int, only: str | None = None) -> Scene:
    """The problem of a seed."""
    random, names = np.random.default_rng(seed), list(KINDS)
    lines = uneven_lines()
    scene = Scene(BASE, cold(BASE, 3, (1.0, -2.0), 0.1), lines, lines, random,
                  1 + 0.03 * random.standard_normal(NFIBRE), np.ones((NY, NX)), np.zeros((NY, NX)),
                  np.zeros((NY, NX)), np.ones((NY, NX), bool))
    chosen = [only or names[seed % len(names)]]
    if only is None:
        chosen += [names[n] for n in random.integers(0, len(names), random.integers(0, 3))]
    first = "wide light", "dead fibres", "faint fibres", "dead bundle"          # what others of the scene go by
    for name in sorted(set(chosen), key=lambda name: (name not in first, names.index(name))):
        KINDS[name](scene)
        scene.words.append(name)
    return scene


def images_of(scene: Scene) -> list[Image]:
    """The arcs: one, or two of which the second is shifted."""
    images = []
    for by in [(0.0, 0.0), *([scene.shift] if scene.shift else [])]:
        light = np.zeros((NY, NX))
        lamp = scene.lamp
        if len(lamp.wave):
            project_lines(light, moved(scene.true, *by), (0, NFIBRE), lamp.wave,
                          scene.share[:, np.newaxis] * lamp.strength)
        light = (light + scene.glow) * scene.factor
        pix = scene.random.poisson(light) + READ_NOISE * scene.random.standard_normal(light.shape) + scene.add
        pix = np.minimum(pix, 65535.0)
        if scene.upside_down:
            pix = pix[::-1]
        ivar = np.where(scene.good, 1 / (np.maximum(pix, 0) + scene.told_noise**2), 0.0)
        images.append(Image(pix.astype(np.float32), ivar.astype(np.float32)))
    return images


@dataclass(frozen=True)
class Verdict:
    """What became of a problem.

    code: exit code; said: its error message; states: of the fibres where there is a file; finds: what must not be
    """

    code: int
    said: str
    states: tuple[int, ...]
    finds: tuple[str, ...]


def run(scene: Scene, folder: Path) -> Verdict:
    """Fit a problem by the program, and judge what it writes."""
    output, start, listed = folder / "psf.fits", folder / "start.fits", folder / "lines.txt"
    write_psf(start, scene.start)
    rows = zip(scene.lines.wave, scene.lines.strength, strict=True)
    listed.write_text("".join(f"{wave:.6f} {strength:.0f}\n" for wave, strength in rows), encoding="utf-8")
    arcs = []
    for n, image in enumerate(images_of(scene)):
        arcs.append(str(folder / f"arc-{n}.fits"))
        write_image(arcs[-1], image, mask=np.where(scene.good, 0, 1).astype(np.int32),
                    read_noise=np.full((NY, NX), scene.told_noise, np.float32))
    output.unlink(missing_ok=True)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["fit", "-i", *arcs, "-p", str(start), "--lines", str(listed), "-o", str(output)])
    said = [line for line in err.getvalue().splitlines() if "error" in line.lower()]
    finds = []
    if code != 0:
        if code != 2:
            finds.append(f"exit code {code}")
        if len(said) != 1:
            finds.append(f"{len(said)} lines of error: {err.getvalue()[-300:]}")
        if output.exists():
            finds.append("a file in spite of an error")
        return Verdict(code, " ".join(said)[:200], (), tuple(finds))
    states, found = judged(scene, output)
    return Verdict(code, "", states, tuple(found))


def judged(scene: Scene, path: Path) -> tuple[tuple[int, ...], list[str]]:
    """STATUS of the fibres, and what is wrong with a file.

    Where STATUS is 0, the bundle's CHI2 below HIGH, ODD below MANY, PSFERR below WRONG and APART below 0.1 (the program
    warns from these on), between a fibre's first and
    last line: the root mean square of the distances of its spots from the true ones is at most FLOOR + TIMES sigma /
    (S/N) (number of the trace's coefficients)^1/2, (S/N)^2 being the sum over its lines, and that of shapes SHAPE_FLOOR
    + TIMES 0.15
    (number of the shapes' parameters)^1/2 / (S/N of the bundle). 0.15 is the root mean square of a spot over its peak;
    the noise leaves a chi squared of 1 for each parameter. In y, twice the list's own error comes on top, and a tenth
    of it in shapes: traces follow the list. A shift d of a Gaussian spot is a PSFERR of d / (2^1/2 SIGMA): WRONG is
    0.16 pixel, three times FLOOR, and what noise alone makes of faint arcs is less.
    """
    psf = read_psf(path)
    with fits.open(path) as hdus:
        fibres, bundles, spots = (np.array(hdus[name].data) for name in ("FIBRES", "BUNDLES", "SPOTS"))
    finds = []
    for fibre in range(NFIBRE):
        bundle = bundles[fibre // 5]
        mine = spots[(spots["FIBER"] == fibre) & (spots["FIRM"] > 0)]
        sound = fibres["STATUS"][fibre] == 0 and bundle["CHI2"] < HIGH and bundle["ODD"] < MANY
        sound = sound and bundle["PSFERR"] < WRONG
        sound = sound and bundle["APART"] < 0.1
        if fibres["STATUS"][fibre] == 0 and not len(mine):
            finds.append(f"fibre {fibre} is said to be fitted to no spot")
        if not sound or not len(mine):
            continue
        wave = np.linspace(mine["WAVELENGTH"].min(), mine["WAVELENGTH"].max(), 12)
        whole = spots[(spots["FIBER"] // 5 == fibre // 5) & (spots["FIRM"] > 0)]
        signal, of_all = (np.sqrt((part["FLUX"] ** 2 * part["IVAR"]).sum()) for part in (mine, whole))
        most = FLOOR + TIMES * SIGMA * np.sqrt(psf.x.coeff.shape[1]) / signal
        most_shape = SHAPE_FLOOR + TIMES * 0.15 * np.sqrt(50 * 6) / of_all + 0.1 * scene.list_error / PITCH
        x, y, shape = apart(scene.true, psf, fibre, wave)
        most_y = most + 2 * scene.list_error / PITCH
        for name, value, limit in (("x", x, most), ("y", y, most_y), ("shape", shape, most_shape)):
            if not value < limit:
                finds.append(f"fibre {fibre}: {name} off by {value:.3f}, allowed {limit:.3f} "
                             f"(chi2 {bundle['CHI2']:.2f}, PSFERR {bundle['PSFERR']:.3f})")
    return tuple(int(state) for state in fibres["STATUS"]), finds


def apart(true: PsfModel, psf: PsfModel, fibre: int, wave: Array) -> tuple[float, float, float]:
    """Root mean squares over a fibre: positions x, y (pixels), shapes (of the peak; 0 where spots are far off)."""
    one, other = select(true, [fibre]), select(psf, [fibre])
    y, x = (centres(one, (0, 1), wave) - centres(other, (0, 1), wave))[:, 0]
    if not max(np.abs(y).max(), np.abs(x).max()) < SEEN:
        return float(np.sqrt((x**2).mean())), float(np.sqrt((y**2).mean())), 0.0
    x, y, _, shape = Judge(one, wave).apart(other)
    rms = [float(np.sqrt((part**2).mean())) for part in (x, y, shape)]
    return rms[0], rms[1], rms[2]
