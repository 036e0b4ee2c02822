"""Fixtures for all tests. Its folder is on the path, so tests can import the helpers there."""
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

# before any library reads it: tests run side by side, and each is meant to measure one thread
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ["GPU_EXTRACT_LOG_TIMES"] = "off"      # log lines are compared without times
# otherwise each program that a test starts would compile all our sources to bytecode: 0.2 s
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

gc.disable()      # until all tests are found: garbage collection took a quarter of that time

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def few_kernels() -> Iterator[None]:
    """Compile each kernel when a test's frame needs it, and none ahead.

    Tests use many PSFs, most of them for one or two frames, which need few of the widths that are compiled ahead for
    each. Programs that are started still compile ahead, as do tests of first_use.
    """
    from gpu_extract import cpu_frame  # numpy, which looks for its threads once, is imported with it

    get_ready = cpu_frame.get_ready
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_frame, "get_ready", lambda kernels, *rest: get_ready(list, *rest))
        yield


@pytest.fixture(scope="session", autouse=True)
def settings_kept() -> Iterator[None]:
    """Look up astropy's settings once, and again only after one of them is set.

    astropy reads its files for each card that it reads or writes, which takes a quarter of the time of tests with small
    files.
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
    """The folder with validation data; the test is skipped if it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no validation data: the folder 'shared' beside the repository is absent")
    return SHARED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder for a test's frames."""
    made = tmp_path / "out"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> "Night":
    """A night of small simulated frames, and each of them extracted singly."""
    from nights import make_night

    return make_night(tmp_path_factory.mktemp("night"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Scheduling | None":
    """Each worker starts with half of the list, and at its end takes from the other's, unless --dist is given.

    A file stays with one worker, which makes its fixtures once. The two workers rarely need the same kernel at the same
    time.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_finish() -> None:
    """Exempt existing objects from garbage collection, and collect less often: it took 2 % of test/device."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests in long_tests.txt as slow: each takes seconds, or shares seconds with others listed, and another
    test guards most of what it guards.

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
