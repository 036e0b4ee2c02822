"""Git commands for the history: lists of commits with dates, and temporary copies of a commit."""
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpu_extract.errors import InputError
from gpu_extract.perf.source import GIT
from gpu_perf.store import Commit

_FORMAT = "%H%x09%ct%x09%s"
_SECONDS = 120.0


def git(folder: Path, *words: str, stdin: str = "") -> str:
    """The output of a git command, given this input. Raises InputError with git's last line if it fails."""
    try:
        done = subprocess.run([*GIT, "-C", str(folder), *words], capture_output=True, text=True, check=False,
                              timeout=_SECONDS, errors="replace", input=stdin)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"git cannot be run in {folder}: {getattr(error, 'strerror', error)}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise InputError(f"git {words[0]} in {folder}: {said[-1] if said else 'failed'}")
    return done.stdout


def commits_of(folder: Path, wanted: str, *, every: int = 1, most: int | None = None) -> list[Commit]:
    """The commits of a revision (one commit) or range A..B, the oldest first.

    every: of a range, only every Nth commit, counted from the newest; most: at most the newest N
    Raises InputError if git does not know them, there are none, or a shallow clone lacks some.
    """
    try:
        found = _log(folder, "--first-parent", *([] if ".." in wanted else ["-1"]), wanted)
    except InputError as error:
        raise InputError(f"{error}{_of_shallow(folder)}") from error
    chosen = found[::max(every, 1)]
    if not chosen:
        raise InputError(f"{wanted}: there is no commit in that range; give another one")
    if ".." in wanted and (most is None or len(chosen) < most) and found[-1].hash in _ends(folder):
        raise InputError(f"{wanted}: commits before {found[-1].hash[:10]} are missing{_of_shallow(folder)}")
    return chosen[:most][::-1]


def places_of(folder: Path, commits: Sequence[Commit]) -> dict[str, int]:
    """commit hash -> number of its ancestors along first parents, without commits that the clone no longer has; empty
    for a shallow clone, which cannot tell.

    All commits of a rebase may have the same date.
    """
    found = {}
    for commit in () if _ends(folder) else commits:
        with suppress(InputError):
            found[commit.hash] = int(git(folder, "rev-list", "--count", "--first-parent", commit.hash, "--"))
    return found


def _of_shallow(folder: Path) -> str:
    """The end of a message about an unknown commit, if the clone has only the newest ones."""
    if _ends(folder):
        return f"; the clone is shallow: git -C {folder} fetch --unshallow gets the older commits"
    return ""


def _ends(folder: Path) -> list[str]:
    """The commits whose ancestors a shallow clone lacks; none in a whole clone."""
    with suppress(InputError, OSError):
        path = git(folder, "rev-parse", "--git-path", "shallow").rstrip("\n")        # relative to the folder
        return (folder / path).read_text(encoding="ascii").split()
    return []


def all_commits(folder: Path) -> list[Commit]:
    """All ancestors of HEAD, the newest first. Raises InputError if the folder is not a clone."""
    return _log(folder, "HEAD")


def _log(folder: Path, *words: str) -> list[Commit]:
    """Commits, the newest first; separated by zero bytes, because a subject may contain other line separators."""
    rows = git(folder, "log", "-z", "--no-show-signature", f"--format={_FORMAT}", *words, "--").split("\0")
    return [Commit(name, float(date), subject) for name, date, subject in (row.split("\t", 2) for row in rows if row)]


@contextmanager
def worktrees(folder: Path, commits: Sequence[Commit], target: Path) -> Iterator[dict[str, Path]]:
    """commit hash -> a copy of the project at that commit below `target`, removed afterwards.

    The places are the same each time, and leftovers of a killed program are replaced. Other worktrees of the clone stay
    registered, even if their folders are missing for the moment.
    """
    made: dict[str, Path] = {}
    try:
        for commit in commits:
            path = (target / commit.hash[:16]).resolve()
            _remove(folder, path)
            git(folder, "worktree", "add", "--detach", "--quiet", "--force", str(path), commit.hash)
            made[commit.hash] = path
        yield made
    finally:
        for path in made.values():
            _remove(folder, path)


def _remove(folder: Path, path: Path) -> None:
    """Remove a worktree, if there is one, or what is left of it."""
    with suppress(InputError):
        git(folder, "worktree", "remove", "--force", str(path))
    shutil.rmtree(path, ignore_errors=True)


def stand_in(folder: Path, commits: Sequence[Commit]) -> dict[str, str]:
    """Make a bare repository of commits without files, with these dates and subjects, on the branch main; returns the
    hash of each there by its own.

    For programs that need a repository, if that of the commits is not available.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main")
    marks = folder / "marks"
    stream = b""
    for number, commit in enumerate(commits, 1):
        text = f"{commit.subject}\n\n{commit.hash}\n".encode()
        stream += (f"commit refs/heads/main\nmark :{number}\ncommitter gpu_track <> {int(commit.date)} +0000\n"
                   f"data {len(text)}\n").encode() + text + b"\n"
    git(folder, "fast-import", "--quiet", f"--export-marks={marks.resolve()}", stdin=stream.decode())
    made = dict(line.split() for line in marks.read_text(encoding="ascii").splitlines())
    return {commit.hash: made[f":{number}"] for number, commit in enumerate(commits, 1)}
