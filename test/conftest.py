"""Fixtures for all tests; its being here also lets tests import the helpers of this folder."""
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from in_browser import browser  # noqa: F401     a fixture

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from nights import Night

# before any library looks: tests run side by side, and each is meant to measure one thread
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ["GPU_EXTRACT_LOG_TIMES"] = "off"      # lines of the log are compared as they are
# else each program that a test starts would compile all our sources to bytecode anew: 0.2 s
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

gc.disable()      # until all tests are found: a quarter of the time for that was a search for garbage

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def few_kernels() -> Iterator[None]:
    """A frame that a test extracts has a kernel compiled when it needs it, and none ahead.

    Tests take many PSFs, and of most a frame or two, which need few of the widths that are compiled ahead for each.
    Programs that are started compile ahead, as do tests of first_use.
    """
    from gpu_extract import cpu_frame  # numpy, which looks for its threads once, comes with it

    get_ready = cpu_frame.get_ready
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_frame, "get_ready", lambda kernels, *rest: get_ready(list, *rest))
        yield


@pytest.fixture(scope="session", autouse=True)
def settings_kept() -> Iterator[None]:
    """astropy's settings are looked up once, and anew after one of them is set.

    It goes through its files for each card that it reads or writes: a quarter of the time of tests with small files.
    """
    from astropy.config import ConfigItem

    look_up, put = ConfigItem.__get__, ConfigItem.set
    kept: dict[object, object] = {}

    def get(item: object, of: object, kind: type | None = None) -> object:
        if of is None:
            return item
        if item not in kept:
            kept[item] = look_up(item, of, kind)
        return kept[item]

    def put_anew(item: object, value: object) -> None:
        put(item, value)
        kept.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigItem, "__get__", get)
        patch.setattr(ConfigItem, "set", put_anew)
        yield


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Scheduling | None":
    """Each worker begins with a half of the list, and at its end takes from the other's, unless --dist asks for more.

    A file stays with one worker, which makes its fixtures once; and the two seldom want the same kernel at a time.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_finish() -> None:
    """What is there now stays."""
    gc.freeze()
    gc.enable()


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
