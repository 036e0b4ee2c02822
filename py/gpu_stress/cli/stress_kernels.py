"""What the stressor's extract test drives: the simulator and the flow of this project."""
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, PsfModel
from gpu_stress.extract import Kernels, Scene


def kernels() -> Kernels:
    """Simulated r frames without defects, extracted on one thread."""
    return Kernels(_scene, _extract)


def _scene(grid: tuple[float, float, float], nfibre: int, seed: int) -> Scene:
    from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate

    made = simulate(SimConfig(nspec=nfibre, seed=seed, truth_grid=grid, defects=NO_DEFECTS, crop=True))
    before = round((grid[0] - made.truth.wave[0]) / grid[2])
    return Scene(made.image, made.psf, made.truth.flux[:nfibre].astype(float), before)


def _extract(image: Image, psf: PsfModel, config: ExtractConfig) -> Frame | None:
    from gpu_extract.run import extract

    return extract(image, psf, config)
