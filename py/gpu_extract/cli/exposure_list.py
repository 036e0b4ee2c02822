"""The frames of an exposure: from a list, from names with wildcards, or simulated."""
import argparse
import glob
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_extract.cli.common import at_least, log
from gpu_extract.errors import InputError, OutputError, check_local
from gpu_extract.io.atomic import FITS_ENDINGS, check_apart

if TYPE_CHECKING:
    from gpu_extract.seams import Comm
    from gpu_extract.simulate import EmbeddedFiles, SimConfig

MOST_BYTES = 10_000_000      # of a list
FOLDER = "simulated"         # of simulated images and PSFs, which are kept, in that of the frames
_SHOWN = 3                   # largest number of folders in a message
_STEM = re.compile(r"(?P<stem>.+?)\.fits(\.gz)?")
_NAMED = re.compile(r"(?P<kind>.+)-(?P<camera>[^-]+)-(?P<expid>[^-]+)")


@dataclass(frozen=True)
class Entry:
    """One frame: paths of its image, its PSF and its output."""

    image: str
    psf: str
    output: str

    @property
    def name(self) -> str:
        """The output's name, for messages and tables."""
        return os.path.basename(self.output)


def find_entries(args: argparse.Namespace) -> tuple[Entry, ...]:
    """The frames that the options name, in order.

    Raises InputError if there are none, a line of the list is invalid, an image has no PSF or output, two frames have
    the same output, or an output would replace an input.
    """
    if args.list:
        entries = tuple(_from_list(args))
    else:
        images = [path for pattern in args.input for path in _matches(pattern)]
        entries = tuple(_entry(args, image) for image in images)
    if not entries:
        raise InputError(f"{args.list}: lists no frame; each line is IMAGE [PSF [OUTPUT]]")
    for entry in entries:
        _check_names(entry)
    check_apart((("an image or a PSF", path) for entry in entries for path in (entry.image, entry.psf)),
                ((f"the frame of {entry.image}", entry.output) for entry in entries))
    return entries


def check_folders(entries: Sequence[Entry], made: str | None) -> None:
    """Raise OutputError, before any work, if the folder of a frame is missing; made: a folder that will be made."""
    folders = Counter(os.path.dirname(entry.output) or "." for entry in entries)
    lost = [folder for folder in folders if not os.path.isdir(folder)
            and (made is None or os.path.realpath(folder) != os.path.realpath(made))]
    if lost:
        shown = [f"{folder} ({folders[folder]} frame{'s' if folders[folder] > 1 else ''})" for folder in lost]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        raise OutputError(f"no such folder: {', '.join(shown[:_SHOWN])}{more}; make them (mkdir -p), or give other "
                          "outputs; no frame was started")


def _check_names(entry: Entry) -> None:
    """Raise InputError for impossible names of frames or files."""
    if not entry.output.endswith(FITS_ENDINGS):
        raise InputError(f"{entry.output}: the name of a frame must end in {' or '.join(FITS_ENDINGS)}; give another "
                         "name")
    for name in (entry.image, entry.psf, entry.output):
        if "\0" in name:
            raise InputError(f"{name}: a file name cannot contain a zero byte; correct the list")
        if "://" in name and not os.path.exists(name):
            check_local(name)


def _matches(pattern: str) -> list[str]:
    """Files that match a pattern, sorted; a name without wildcards matches itself, even if missing."""
    if not glob.has_magic(pattern):
        return [pattern]
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        check_local(pattern)
        raise InputError(f"{pattern}: matches no file; check the folder, and that the pattern is in quotes")
    return found


def _from_list(args: argparse.Namespace) -> Iterator[Entry]:
    """The lines IMAGE [PSF [OUTPUT]] of a list; names are relative to its folder."""
    try:
        with open(args.list, "rb") as handle:
            content = handle.read(MOST_BYTES + 1)
        if content.startswith(b"SIMPLE  ="):
            raise InputError(f"{args.list}: is a FITS file, and no list of them; give images with -i")
        lines = content.decode("utf-8-sig").splitlines()      # Windows editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{args.list}: cannot be read: {getattr(error, 'strerror', None) or error}; give a text file "
                         "with a line IMAGE [PSF [OUTPUT]] for each frame") from error
    if len(content) > MOST_BYTES:
        raise InputError(f"{args.list}: has more than {MOST_BYTES} bytes; give a text file with a line IMAGE [PSF "
                         "[OUTPUT]] for each frame")
    folder = os.path.dirname(args.list)
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise InputError(f"{args.list}, line {number}: {error}; each line is IMAGE [PSF [OUTPUT]]") from error
        if "" in words:
            raise InputError(f"{args.list}, line {number}: an empty name; each line is IMAGE [PSF [OUTPUT]]")
        if len(words) > 3:
            raise InputError(f"{args.list}, line {number}: {len(words)} words; each line is IMAGE [PSF [OUTPUT]], "
                             "names with spaces in quotes")
        if words:
            yield _entry(args, *(os.path.join(folder, word) for word in words))


def _entry(args: argparse.Namespace, image: str, psf: str | None = None, output: str | None = None) -> Entry:
    return Entry(image, psf or psf_of(args.psf, image), output or output_of(args.output, image))


def output_of(folder: str | None, image: str) -> str:
    """FOLDER/frame-CAMERA-EXPID.fits for preproc-CAMERA-EXPID.fits[.gz]; frame-NAME.fits for other names."""
    if folder is None:
        raise InputError(f"{image}: has no output; give -o FOLDER, or a third word in the list")
    stem = stem_of(image)
    return os.path.join(folder, f"frame-{stem.removeprefix('preproc-')}.fits")


def psf_of(template: str | None, image: str) -> str:
    """The PSF of an image: the template with {camera}, {expid} and {stem} filled in from the image's name."""
    if template is None:
        raise InputError(f"{image}: has no PSF; give -p FILE, or a second word in the list")
    stem = stem_of(image)
    named = _NAMED.fullmatch(stem)
    fields = {"stem": stem, **(named.groupdict() if named else {})}
    try:
        return template.format_map(fields)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
        raise InputError(f"{template}: cannot be filled in for {image} ({error}); {{camera}}, {{expid}} and {{stem}} "
                         "come from names like preproc-r5-00012345.fits") from error


def stem_of(path: str) -> str:
    """The file's name without .fits or .fits.gz."""
    name = os.path.basename(path)
    match = _STEM.fullmatch(name)
    return match["stem"] if match else name


def simulated_entries(args: argparse.Namespace, comm: "Comm") -> tuple[Entry, ...]:
    """The frames of --simulate; all ranks call this, and each makes the frames assigned to it.

    Raises InputError or ConfigError for impossible simulations, OutputError if files cannot be written.
    """
    configs = [_config(args, number) for number in range(args.simulate)]
    numbers = comm.hand_out(len(configs))
    try:
        for number in iter(numbers.take, None):
            _make(args.output, configs[number])
    finally:
        numbers.close()
    comm.barrier()
    found = [_files(args.output, config) for config in configs]
    return tuple(Entry(str(files.image), str(files.psf), output_of(args.output, files.image.name)) for files in found)


def check_simulation(args: argparse.Namespace) -> None:
    """Raise InputError if the options are inconsistent."""
    at_least(args.simulate, "--simulate")
    if args.output is None:
        raise InputError("--simulate needs -o FOLDER, for frames and simulated images")
    if args.psf is not None:
        raise InputError("--simulate makes its own PSFs; leave -p out")


def _config(args: argparse.Namespace, number: int) -> "SimConfig":
    """Settings of one frame: the bundles that will be extracted, a camera in turn, its own seed."""
    from gpu_extract.simulate import SimConfig

    cameras = args.camera.split(",")
    return SimConfig(camera=cameras[number % len(cameras)], specmin=args.specmin, nspec=args.nspec,
                     seed=args.seed + number, expid=number + 1, crop=args.nspec is not None)


def _files(folder: str, config: "SimConfig") -> "EmbeddedFiles":
    """A frame's files, in the folder where they are kept."""
    from gpu_extract.simulate.embedded import files_of
    from gpu_extract.simulate.header import VERSION

    kept = f"v{VERSION}-{config.camera}-{config.expid:08d}-{config.digest()}"
    return files_of(Path(folder) / FOLDER / kept, config)


def _make(folder: str, config: "SimConfig") -> None:
    """Make one frame, unless it exists unchanged."""
    from gpu_extract.simulate import simulate, write_simulation
    from gpu_extract.simulate.kept import kept_folder

    image, psf, _ = _files(folder, config)

    def make(into: Path) -> None:
        log.info(f"simulating {image.name}, once; kept in {os.path.join(folder, FOLDER)}")
        write_simulation(simulate(config), into / image.name, psf=into / psf.name)

    kept_folder(image.parent.parent, image.parent.name, make, log=log.info)
