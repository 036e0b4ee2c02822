"""gpu_track: run times over the commits of a project, and which commits changed them."""
import argparse
import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import Parser, add_common_options, at_least, log, run_main, say, stop_when_asked
from gpu_extract.errors import ExitCode, InputError

if TYPE_CHECKING:
    from gpu_perf.store import Commit, Store

PROG = "gpu_track"
STORE = "track.sqlite"
DESCRIPTION = """\
Keep a history of run times: measure commits with a representative problem,
store the results, show them on a page, and find the commit that made something
slower."""

EPILOG = """\
examples
  gpu_track run
      measure HEAD of the project in this folder
  gpu_track run v0.1..HEAD --every 5
      every fifth commit of a range, in temporary copies
  gpu_track page -o site
      an interactive page
  gpu_track check
      exit code 1 if something became slower, beyond noise
  gpu_track baseline 3f87ff9
      what 1.0 stands for
  gpu_track import times.csv --series old-code --dates commits.txt
  gpu_track asv -o asv && cd asv && asv publish

exit codes
  0 done   1 check found a regression, or a commit could not be measured
  2 usage or input   3 output   4 internal error
  75 stopped cleanly, start again"""


def build_parser() -> Parser:
    """The parser of gpu_track."""
    parser = Parser(PROG, DESCRIPTION, EPILOG)
    add_common_options(parser)
    make = parser.commands()

    def command(name: str, text: str) -> Any:
        made = make(name, text)
        made.add_argument("--store", metavar="FILE", default=STORE, help=f"the store (default {STORE})")
        return made.add_argument

    _run_options(command("run", "measure a commit or a range of commits"))
    add = command("page", "build the site")
    add("-o", "--output", metavar="FOLDER", default="track", help="folder for index.html and its companions (default "
                                                                  "track)")
    _selection(add)
    add = command("check", "exit code 1 if a component is slower than at the baseline, beyond noise")
    _selection(add)
    add("--since", metavar="COMMIT", help="report only regressions after this commit (default: the baseline)")
    add = command("baseline", "choose the commit that 1.0 stands for")
    add("commit", metavar="COMMIT", help="beginning of the commit's hash")
    add("--series", metavar="NAME", help="only this series (default: all series that have the commit)")
    add = command("import", "add figures measured elsewhere: CSV, or a list of commits and dates")
    add("file", metavar="FILE", help="CSV file with a column commit or date and one column per figure, or lines "
                                     'HASH|SECONDS as printed by git log --format="%%h|%%ct"')
    add("--series", metavar="NAME", help="the series to add to (default: the file's name)")
    add("--dates", metavar="FILE", help="file of lines HASH|SECONDS with the dates of the commits of a CSV file")
    _repository(add)
    add = command("asv", "export to asv's format, for asv publish")
    add("-o", "--output", metavar="FOLDER", default="asv", help="folder for asv.conf.json and results (default asv)")
    _repository(add)
    command("list", "list the series, their commits and failures")
    return parser


def _run_options(add: Any) -> None:
    add("commits", metavar="COMMIT|A..B", nargs="?", default="HEAD", help="commit or range of commits (default HEAD)")
    add("--problem", metavar="NAME", default="r-50", help="r-50 (default), r-25, r-25-dense or tiny (etc/track.ini)")
    add("--repeats", type=int, metavar="N", default=5, help="successful repeats per commit (default 5)")
    add("--every", type=int, metavar="N", default=1, help="measure only every Nth commit of a range, counted from the "
                                                          "newest")
    add("--most", type=int, metavar="N", help="measure at most the newest N commits of a range")
    add("--together", type=int, metavar="N", default=4, help="number of commits whose repeats are interleaved (default "
                                                             "4)")
    add("--machine", metavar="NAME", default=platform.node(), help="name of this machine in the store")
    _repository(add)


def _selection(add: Any) -> None:
    add("--series", metavar="NAME", action="append", default=[], help="only this series; may be given several times")
    add("--baseline", metavar="COMMIT", help="commit that 1.0 stands for (default: as chosen by gpu_track baseline, "
                                             "else the oldest)")


def _repository(add: Any) -> None:
    add("--repository", metavar="FOLDER", default=".", help="a clone of the project (default: this folder)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpu_track; returns its exit code."""
    return run_main(build_parser, _body, argv)


def _body(args: argparse.Namespace) -> int:
    stop_when_asked()
    from gpu_perf.store import Store

    new = args.command in ("run", "import")
    if args.command in ("page", "asv"):
        from gpu_extract.io.atomic import check_folder

        check_folder(args.output)
    for name in ("repeats", "every", "together", "most") if args.command == "run" else ():
        at_least(getattr(args, name), f"--{name}")
    with Store(Path(args.store), must_exist=not new) as store:
        work = {"run": _run, "page": _page, "check": _check, "baseline": _baseline, "import": _import, "asv": _asv,
                "list": _list}
        return int(work[args.command](args, store))


def _run(args: argparse.Namespace, store: "Store") -> ExitCode:
    from gpu_perf.cli.sweep import find_launcher
    from gpu_perf.measure import Bench, measure
    from gpu_perf.problems import find_problem
    from gpu_perf.repository import commits_of

    problem = find_problem(args.problem)
    repository = Path(args.repository)
    commits = commits_of(repository, args.commits, every=args.every, most=args.most)
    launcher = find_launcher("mpiexec", "", several=True).words if problem.ranks > 1 else ()
    bench = Bench(store, problem, repository, launcher, args.machine, args.repeats, log.info)
    failed = measure(bench, commits, together=args.together)
    say(f"{len(commits)} commits in {bench.series}" + (f", {failed} failures" if failed else "")
        + f"; gpu_track page --store {args.store}")
    return ExitCode.CHECK_FAILED if failed else ExitCode.DONE


def _page(args: argparse.Namespace, store: "Store") -> ExitCode:
    from gpu_perf.site import build

    for line in build(store, Path(args.output), args.series, args.baseline):
        say(line)
    log.info(f"page: {Path(args.output) / 'index.html'}")
    return ExitCode.DONE


def _check(args: argparse.Namespace, store: "Store") -> ExitCode:
    from gpu_perf.changes import FEWEST
    from gpu_perf.history import history_of, verdict

    since = store.find(args.since) if args.since else None
    code = ExitCode.DONE
    for name in args.series or store.series():
        if not args.series and not store.measured(name):
            say(f"{name}: not judged: no commit has a result")
            continue
        history = history_of(store, name, args.baseline)
        lines = verdict(history, since)
        if len(history.commits) < FEWEST:
            lines = [f"not judged: {len(history.commits)} commits, {FEWEST} are needed"]
        elif lines:
            code = ExitCode.CHECK_FAILED
        for line in lines or [f"nothing is slower than at {(since or history.baseline).hash[:10]}, beyond noise"]:
            say(f"{name}: {line}")
    return code


def _baseline(args: argparse.Namespace, store: "Store") -> ExitCode:
    commit = store.find(args.commit)
    chosen = [args.series] if args.series else [s for s in store.series() if store.good(s, commit.hash)]
    if not chosen or (args.series and not store.good(args.series, commit.hash)):
        raise InputError(f"{commit.hash[:10]} has no result in {args.series or 'any series'}: measure it first")
    for name in chosen:
        store.set_baseline(name, commit.hash)
        say(f"{name}: 1.0 is {commit.hash[:10]} ({commit.subject})")
    return ExitCode.DONE


def _import(args: argparse.Namespace, store: "Store") -> ExitCode:
    from gpu_perf.external import add_table, read_list

    path = Path(args.file)
    try:
        listed = read_list(path)
    except InputError:
        if path.suffix.lower() != ".csv":
            raise
        known = _known(args, store)
        name = args.series or path.stem
        new, lines = add_table(store, path, name, known)
        say(f"{new} of {lines} lines are new in {name}")
        return ExitCode.DONE
    say(f"{store.add_commits(listed)} of {len(listed)} commits are new")
    return ExitCode.DONE


def _known(args: argparse.Namespace, store: "Store") -> "dict[str, Commit]":
    """Commits by every prefix of their hash that a table may use, from the store, --dates and the repository."""
    from gpu_perf.external import read_list
    from gpu_perf.repository import all_commits

    commits = [*store.commits(), *(read_list(Path(args.dates)) if args.dates else [])]
    with suppress(InputError):            # the series may belong to another project
        commits += all_commits(Path(args.repository))
    found: dict[str, Commit] = {}
    for commit in commits:
        for length in {len(commit.hash), *range(7, 13)}:
            found.setdefault(commit.hash[:length], commit)
    return found


def _asv(args: argparse.Namespace, store: "Store") -> ExitCode:
    from gpu_perf.asv import export

    written = export(store, Path(args.output), Path(args.repository))
    say(f"{written} files of results; cd {args.output} && asv publish")
    return ExitCode.DONE


def _list(args: argparse.Namespace, store: "Store") -> ExitCode:
    for name in store.series():
        measured = store.measured(name)
        say(f"{name}: {len(measured)} commits")
        for commit in store.commits(name):
            if commit.hash in measured:
                repeats = max(len(v) for v in measured[commit.hash].values())
                say(f"  {commit.hash[:10]}  {repeats} repeats  {commit.subject}")
        for commit_hash, what in store.failures(name).items():
            say(f"  {commit_hash[:10]}  {what}")
    return ExitCode.DONE


if __name__ == "__main__":
    raise SystemExit(main())
