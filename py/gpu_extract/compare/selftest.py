"""The shipped cut-out: an image, its PSF, and the frame that the oracle made from it.

bench/make_selftest.py made the three files once; a run only reads them.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources

from gpu_extract.compare.frames import compare_frames
from gpu_extract.compare.verdict import Comparison
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, PsfModel

Extract = Callable[[Image, PsfModel, ExtractConfig], Frame | None]


@dataclass(frozen=True)
class CutOut:
    """The shipped image and PSF, the settings that define the answer, and the answer."""

    image: Image
    psf: PsfModel
    config: ExtractConfig
    reference: Frame


def load_cutout(config: ExtractConfig | None = None) -> CutOut:
    """The cut-out, with those of the run's settings that must not change the answer (core, patches, tolerance).

    Raises InputError if the installed files are damaged.
    """
    from gpu_extract.io.frame import read_frame
    from gpu_extract.io.image import read_image
    from gpu_extract.io.psf import read_psf
    folder = resources.files("gpu_extract").joinpath("etc/selftest")
    with resources.as_file(folder) as path:
        image, psf = read_image(path / "image.fits"), read_psf(path / "psf.fits")
        reference = read_frame(path / "reference.fits")
    first, last = float(reference.wave[0]), float(reference.wave[-1])
    own = ExtractConfig(wavelength=(first, last, (last - first) / (len(reference.wave) - 1)))
    if config is not None:
        own = replace(own, core=config.core, nsubbundles=config.nsubbundles, nwavestep=config.nwavestep,
                      tolerance=config.tolerance)
    return CutOut(image, psf, own, reference)


def self_test(extract: Extract, config: ExtractConfig | None = None) -> Comparison | None:
    """Extract the shipped cut-out with `extract(image, psf, config)` and judge it by the oracle's frame.

    config: the run's settings, of which those that must not change the answer are used
    Returns None on ranks where `extract` returns None.
    """
    cutout = load_cutout(config)
    frame = extract(cutout.image, cutout.psf, cutout.config)
    return None if frame is None else compare_frames(frame, cutout.reference, "oracle")
