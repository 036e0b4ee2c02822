"""gpu_setup: installs files where other software looks for them, and copies templates."""
import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from gpu_extract.cli.common import Parser, add_common_options, run_main, say
from gpu_extract.errors import ExitCode, InputError
from gpu_extract.io.atomic import check_folder, write_text

DESCRIPTION = """\
Set up gpu_extract for use with other software. Existing files with other
content are never replaced."""

EPILOG = """\
examples
  gpu_setup specutils
      from now on specutils opens frames without an import
  gpu_setup templates jobs
      copy templates for Slurm, Snakemake, Parsl and ReFrame, and an example of
      a file of presets, to the folder jobs

exit codes
  0 done   2 usage, or a file with other content exists   3 output
  4 internal error"""

LOADER = "~/.specutils/gpu_extract_frames.py"             # specutils imports every file of that folder
LOADER_TEXT = '''\
"""Written by gpu_setup specutils: this file lets specutils open frames of gpu_extract. Remove it to undo that."""
from contextlib import suppress

with suppress(ImportError):         # without gpu_extract, specutils is left as it is
    import gpu_extract.io.loader  # noqa: F401
'''
TEMPLATES = ("slurm", "workflow")                         # folders of etc/


def build_parser() -> Parser:
    """The parser of gpu_setup."""
    parser = Parser("gpu_setup", DESCRIPTION, EPILOG)
    command = parser.commands()
    command("specutils", f"install a loader for frames where specutils finds it ({LOADER})")
    command("templates", "copy templates for batch systems and workflows, and an example of presets").add_argument(
        "folder", metavar="FOLDER", help="folder for the templates; created if missing")
    add_common_options(parser)
    return parser


def set_up(args: argparse.Namespace) -> int:
    """Write missing files, and list them on standard output."""
    if args.command == "specutils":
        wanted = {Path(LOADER).expanduser(): LOADER_TEXT}
    else:
        check_folder(args.folder)
        folder = resources.files("gpu_extract").joinpath("etc")
        wanted = {Path(args.folder) / name: text for top in TEMPLATES for name, text in _texts(folder / top, top)}
    there = {path: path.read_bytes() for path in wanted if path.is_file()}
    changed = [path for path, content in there.items() if content != wanted[path].encode()]
    if changed:
        raise InputError(f"{changed[0]}: exists with other content; move it away, or give another folder")
    _write({path: text for path, text in wanted.items() if path not in there})
    for path in wanted:                 # after all is written, because the reader may leave before the end
        say(f"{'is there' if path in there else 'written'}: {path}")
    return ExitCode.DONE


def _write(texts: Mapping[Path, str]) -> None:
    """Write files, all or none; folders made for them go with them."""
    missing = {folder for path in texts for folder in path.parents if not folder.exists()}
    try:
        for path, text in texts.items():
            write_text(path, text)
    except BaseException:
        for path in texts:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        for folder in sorted(missing, reverse=True):            # inner ones first
            with suppress(OSError):
                folder.rmdir()
        raise


def _texts(folder: Any, name: str) -> Iterator[tuple[str, str]]:
    """Names and contents of the files of a folder of the package."""
    for item in sorted(folder.iterdir(), key=lambda item: str(item.name)):
        if item.is_file():
            yield f"{name}/{item.name}", item.read_text(encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """The command gpu_setup; returns its exit code."""
    return run_main(build_parser, set_up, argv)


if __name__ == "__main__":
    raise SystemExit(main())
