"""The extraction as an operation in the style of specreduce: made with an image, called for a Spectrum."""
from dataclasses import dataclass, field
from typing import Any

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, PsfModel
from gpu_extract.errors import FileName, InputError
from gpu_extract.run import extract


@dataclass
class PsfExtract:
    """Extract all fibres of an image with the PSF; replaces specreduce's BoxcarExtract or HorneExtract.

    image: NDData (CCDData, Spectrum) of (ny, nx) in electrons with an uncertainty
    psf: data.PsfModel, or the name of a file
    wavelength: (first, last, step) of the bins, Angstrom, both ends included
    settings: further settings of ExtractConfig: specmin, nspec, psferr, ...
    frame: after a call: the result, with the resolution matrix; None before

    A call returns a specutils.Spectrum of (nspec, nwave), in electron/Angstrom. Its arguments override those above.
    Raises InputError like `extract`, and without specutils.
    """

    image: Any
    psf: PsfModel | FileName
    wavelength: tuple[float, float, float]
    settings: dict[str, Any] = field(default_factory=dict)
    frame: Frame | None = field(default=None, init=False, repr=False)

    def __call__(self, image: Any = None, **changes: Any) -> Any:
        """Extract, with `image` and settings, if given, instead of the stored ones."""
        from gpu_extract.io.nddata import image_of, spectrum_of
        from gpu_extract.io.psf import read_psf

        config = ExtractConfig(**{"wavelength": self.wavelength, **self.settings, **changes})
        psf = self.psf if isinstance(self.psf, PsfModel) else read_psf(self.psf)
        self.frame = extract(image_of(self.image if image is None else image), psf, config)
        if self.frame is None:
            raise InputError("PsfExtract runs in one process; under MPI call gpu_extract.extract")
        return spectrum_of(self.frame)

    @property
    def spectrum(self) -> Any:
        """The spectra with the stored settings."""
        return self()
