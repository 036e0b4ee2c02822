"""Work space is kept from frame to frame by who extracts many, and given back by who extracts one."""
import pytest

from gpu_extract.backend.arena import borrowed, forget
from gpu_extract.compare.selftest import load_cutout
from gpu_extract.cpu_frame import CpuFrames
from gpu_extract.run import extract


@pytest.mark.parametrize("keep", [True, False])
def test_work_space(keep: bool) -> None:
    cutout = load_cutout()
    forget()
    extract(cutout.image, cutout.psf, cutout.config, backend=CpuFrames(keep=keep))
    with borrowed() as arena:
        assert bool(arena._blocks) == keep
    forget()
