"""The start: imports, log lines, and numbers that are handed out."""
import json
import subprocess
import sys
import threading
from pathlib import Path

from gpu_extract.ranks.hand_out import Numbers
from nights import PROGRAM, Night

# third-party packages that a run on the CPU imports, without a launcher; those that astropy imports are astropy's
ALLOWED = {"numpy", "scipy", "numba", "llvmlite", "astropy", "astropy_iers_data", "erfa", "yaml", "packaging",
           "sortedcontainers", "isal", "threadpoolctl"}
MOST_MODULES = 1100       # there are 840, and 200 more if kernels are compiled
NEVER = ("astropy.modeling", "astropy.wcs", "scipy.optimize", "scipy.stats", "numba.cuda", "mpi4py", "matplotlib")


def test_imports_are_lean(night: Night, folder: Path) -> None:
    """Every module counts for every rank: with many ranks the file system serves them all at once."""
    command = ["-i", str(night.images[0]), *night.options[6:], "-o", str(folder), "--no-gpu", "--perf",
               str(folder.parent / "perf.json")]
    code = ("import json, sys; from gpu_extract.cli.exposure import main; code = main(json.loads(sys.argv[1])); "
            "print(json.dumps([code, sorted(sys.modules)]))")
    done = subprocess.run([sys.executable, "-c", code, json.dumps(command)], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout)
    assert code == 0
    others = {name.split(".")[0] for name in modules
              if not name.startswith("_") and hasattr(sys.modules.get(name.split(".")[0], None), "__file__")}
    debians = "sitecustomize"
    installed = {name for name in others if name not in sys.stdlib_module_names} - {"gpu_extract", debians}
    assert sorted(installed - ALLOWED) == []
    assert [name for name in modules if name in NEVER] == []
    assert len(modules) < MOST_MODULES
    assert "start-up, seconds of the slowest rank: interpreter " in done.stderr
    (rank,) = json.loads((folder.parent / "perf.json").read_text())["ranks"]
    steps = ["interpreter", "imports", "MPI", "wait for compilation", "kernels", "first patch"]
    assert list(rank["start"]) == steps and all(cpu <= wall + 0.5 for wall, cpu in rank["start"].values())


def test_help_is_quick_and_teaches() -> None:
    code = "import sys; from gpu_extract.cli.exposure import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "numba", "astropy", "mpi4py", "matplotlib"} & set(done.stdout.split())
    for word in ("examples", "exit codes", "--simulate N", "start again", "mpiexec -n 20", PROGRAM.name):
        assert word in done.stdout


def test_every_number_is_given_once() -> None:
    told: list[tuple[int, int]] = []
    numbers = Numbers(range(500), lambda number, state: told.append((number, state)))

    def work() -> None:
        for number in iter(numbers.take, None):
            numbers.tell(number, 7)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [(number, 7) for number in range(500)]
    more = Numbers(range(5))
    assert more.take() == 0
    more.stop()
    assert more.take() is None


def test_what_is_held_and_not_begun_can_be_borrowed_once() -> None:
    numbers = Numbers(range(4))
    assert [numbers.hold(rank) for rank in (1, 2, 1, 2)] == [0, 1, 2, 3]       # each has one in work and one ahead
    assert numbers.begin(0) and numbers.begin(1)
    assert numbers.hold(3) is None
    assert numbers.borrow(2) == 2 and numbers.borrow(3) == 3          # never a rank's own, never twice
    assert numbers.borrow(3) is None and numbers.borrow(1) is None
    assert numbers.begin(2) and not numbers.begin(2)                   # first come, first served
    numbers.stop()
    assert numbers.borrow(1) is None
