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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what long_tests.txt lists: measured, each takes seconds, or what it has in common with
    others listed does, and another test does most of it.

    Raises UsageError for a line that names no test of its file.
    """
    listed = set((Path(__file__).parent / "long_tests.txt").read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker("slow")
    if not any("::" in argument for argument in config.args):
        files = {item.nodeid.split("::")[0] for item in items}
        lost = {line for line in listed if line.split("::")[0] in files} - {item.nodeid for item in items}
        if lost:
            raise pytest.UsageError(f"test/long_tests.txt names tests that are not there: {', '.join(sorted(lost))}")
