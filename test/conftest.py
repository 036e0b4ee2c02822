"""Fixtures for all tests; its being here also lets tests import the helpers of this folder."""
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from in_browser import browser  # noqa: F401     a fixture

if TYPE_CHECKING:
    from nights import Night

# before any library looks: tests run side by side, and each is meant to measure one thread
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ["GPU_EXTRACT_LOG_TIMES"] = "off"      # lines of the log are compared as they are

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with validation data; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no validation data: the folder 'shared' beside the repository is absent")
    return SHARED


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> "Night":
    """A night of small simulated frames, and each of them extracted by itself."""
    from nights import make_night

    return make_night(tmp_path_factory.mktemp("night"))
