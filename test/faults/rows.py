"""The fault matrix: every tested fault, how it is made, and the expected outcome. Faults are declared only here.

The tests beside this file run the rows; `python test/faults/table.py` writes doc/reliability.md from them.
"""
import shlex
import sys
from dataclasses import dataclass

import changes as make
import numpy as np
import outside
from case import BETWEEN, BINS, FIBRES, IN_CORE, ON_TRACE, Change
from holds import APART, SAME, USED, Holds, Seen, dropped, everywhere, first_rows_of, like, nodata, odd, shaped

from gpu_extract.data import Status

nan, inf = np.nan, np.inf
ALL = np.s_[:]


@dataclass(frozen=True)
class Row:
    """A fault of the input.

    change: makes the fault; says: part of the one-line error, or of a warning
    holds: properties of the frame; if there are none, the command fails with exit code 2 and writes no file
    """

    fault: str
    change: Change
    says: str = ""
    holds: tuple[Holds, ...] = ()

    @property
    def code(self) -> int:
        """The exit code."""
        return 0 if self.holds else 2


def masked(case: object) -> None:
    """The pixel on the trace has ivar 0."""
    make.ivar(0, ON_TRACE)(case)         # type: ignore[arg-type]


def many(change: Change) -> Change:
    """Thirty fibres in bundles of 25, few bins."""
    return make.both(make.of_fibres(30), make.bundled(25), make.grid("6050,6055.95,0.85"), change)


def fibres(number: int) -> Change:
    """A PSF of so many fibres in bundles of 25, few bins."""
    return make.both(make.of_fibres(number), make.bundled(25), make.first_fibres(number),
                     make.grid("6050,6055.95,0.85"))


WITH_TRUST = "1 NaN or infinite pixels with ivar > 0; mask them, or set their ivar to 0"
def _ends(seen: Seen) -> None:
    assert (seen.frame.ivar[:, 5:-5] > 0).all() and seen.frame.flux.shape == (FIBRES, 130)


MASKED = like("with ivar 0 there", masked)
INTEGERS = like("of the same values in single precision", make.rounded)
FIRST = make.FIRST
SQUARE = np.s_[95:98, 19:22]       # on a trace

PIXELS = (
    Row("one NaN pixel", make.pixel(nan, ON_TRACE), WITH_TRUST),
    Row("one +Inf pixel", make.pixel(inf, ON_TRACE), WITH_TRUST),
    Row("one -Inf pixel", make.pixel(-inf, ON_TRACE), WITH_TRUST),
    Row("NaN in a pixel with ivar 0", make.both(make.pixel(nan, ON_TRACE), masked), holds=(MASKED, APART)),
    Row("Inf in a pixel with ivar 0", make.both(make.pixel(-inf, ON_TRACE), masked), holds=(MASKED, APART)),
    Row("NaN in a pixel with a MASK bit", make.both(make.pixel(nan, ON_TRACE), make.bits(1, ON_TRACE)),
        holds=(MASKED, APART)),
    Row("all pixels NaN", make.pixel(nan, ALL), "no finite pixel (all 19968 are NaN or infinite)"),
    Row("one pixel of 1e30", make.pixel(1e30, ON_TRACE), holds=(odd(masked), APART)),
    Row("one pixel of -1e30", make.pixel(-1e30, ON_TRACE), holds=(odd(masked), APART)),
    Row("one pixel of 3.4e38, the largest float32", make.pixel(3.4e38, ON_TRACE), holds=(odd(masked), APART)),
    Row("one pixel of 1e30 between two traces", make.pixel(1e30, BETWEEN), holds=(odd(make.ivar(0, BETWEEN)), APART)),
    Row("two adjacent pixels of 1e30", make.pixel(1e30, ON_TRACE, IN_CORE), holds=(odd(make.ivar(0, ON_TRACE, IN_CORE)),
                                                                             APART)),
    Row("3 x 3 pixels of 1e9 with the ivar of read noise",
        make.both(make.pixel(1e9, SQUARE), make.ivar(0.1, SQUARE)), holds=(odd(make.ivar(0, SQUARE)), APART)),
    Row("one denormal pixel, 1e-45", make.pixel(1e-45, ON_TRACE), holds=(like("with 0 there", make.pixel(0, ON_TRACE)),
                                                                      APART)),
    Row("one negative pixel, -20", make.pixel(-20, ON_TRACE), holds=(USED, APART)),
    Row("all pixels of a bundle 1e30", make.pixel(1e30, FIRST),
        holds=(odd(make.ivar(0, FIRST)), nodata(slice(0, 5), "its bins have no data"), APART)),
    Row("all pixels of a bundle 1e200", make.both(make.doubles, make.pixel(1e200, FIRST)),
        holds=(odd(make.both(make.doubles, make.ivar(0, FIRST))), APART)),
    Row("all pixels 0", make.pixel(0, ALL), "check the image's ivar", (shaped(FIBRES, BINS),)),
    Row("all pixels -100", make.pixel(-100, ALL), "check that this is the image's PSF, and check its ivar",
        (shaped(FIBRES, BINS),)),
    Row("IVAR with the BUNIT of a variance", make.keyword("BUNIT", "electron2", hdu="IVAR", where="image"),
        "BUNIT of IVAR is electron2, that of the image electron: ivar is taken to be in 1/electron2", (SAME,)),
    Row("one NaN ivar", make.ivar(nan, ON_TRACE), "IVAR has 1 NaN, 0 negative and 0 infinite values"),
    Row("one Inf ivar", make.ivar(inf, ON_TRACE), "IVAR has 0 NaN, 0 negative and 1 infinite values"),
    Row("one negative ivar", make.ivar(-1, ON_TRACE), "IVAR has 0 NaN, 1 negative and 0 infinite values"),
    Row("one ivar of -0", make.ivar(-0.0, ON_TRACE), holds=(MASKED, APART)),
    Row("one ivar of 1e30", make.ivar(1e30, ON_TRACE), holds=(odd(masked), APART)),
    Row("one ivar 1000 times too large", make.times(1000, ON_TRACE), holds=(odd(masked), APART)),
    Row("one denormal ivar, 1e-45", make.ivar(1e-45, ON_TRACE), holds=(USED, APART)),
    Row("all ivar of a bundle 0", make.ivar(0, FIRST), holds=(nodata(slice(0, 5), "its bins have no data"), APART)),
    Row("all ivar of a bundle denormal", make.ivar(1e-45, FIRST),
        holds=(nodata(slice(0, 5), "its bins have no data: their ivar underflows in single precision"), APART)),
    Row("all ivar 0", make.ivar(0, ALL), "no bin has data",
        holds=(everywhere("all bins NODATA, EMPTY", Status.EMPTY),)),
    Row("all ivar denormal", make.ivar(1e-45, ALL), "the image's ivar is 1.4e-45 (median), must be 1e-34 to 1e+34"),
    Row("the image in other units, times 1e12", make.units(1e12), holds=(shaped(FIBRES, BINS),)),
    Row("the image in other units, times 1e30", make.units(1e30), "give the image in electrons"),
    Row("the image in other units, times 1e-150", make.units(1e-150), "give the image in electrons"),
)

TYPES = [("uint8", 255), ("uint8", 1), ("int16", 1), ("uint16", 65535), ("int32", 512), ("uint32", 2**32 - 1),
         ("int64", 1), ("uint64", 1)]

MASKS = (
    Row("no MASK", make.without("MASK"), holds=(SAME,)),
    Row("bit 8 (BADREADNOISE) everywhere", make.bits(256, ALL), holds=(SAME,)),
    *(Row(f"bit {bit} at a pixel", make.bits(1 << bit, ON_TRACE), holds=(MASKED, APART))
      for bit in (0, 1, 2, 3, 4, 5, 6, 7, 9)),
    *(Row(f"bit {bit} at a pixel", make.bits(1 << bit, ON_TRACE), holds=(SAME,)) for bit in (10, 30)),
    *(Row(f"MASK of type {kind}, {value} at a pixel", make.mask_of(kind, value, ON_TRACE), holds=(MASKED, APART))
      for kind, value in TYPES),
    *(Row(f"MASK of type {kind}, compressed", make.mask_of(kind, 1, ON_TRACE, compressed=True),
          holds=(MASKED, APART)) for kind in ("uint8", "int16", "uint16", "int32", "uint32")),
    Row("MASK of type float32", make.mask_of("float32", 1, ON_TRACE), "MASK is of type float32, must be integers"),
    Row("MASK of a different shape", make.shaped("MASK", lambda a: a[1:]), "MASK has shape (191, 104), IMAGE has"),
)

STORED = (
    *(Row(f"pixels of type {kind}", make.typed(kind), holds=(INTEGERS,))
      for kind in ("f8", "i2", "u2", "i4", "u4", "i8")),
    *(Row(f"pixels compressed with {kind}", make.packed(kind), holds=(INTEGERS,))
      for kind in ("RICE_1", "GZIP_1", "GZIP_2", "HCOMPRESS_1", "PLIO_1")),
    Row("pixels with BSCALE and BZERO", make.scaled(32, 1 / 64), holds=(like("of the same values in double precision",
                                                                           make.steps),)),
)

SHAPES = (
    Row("no IVAR", make.without("IVAR"), "no HDU IVAR; the file has IMAGE, MASK, READNOISE, FIBERMAP"),
    Row("no READNOISE", make.without("READNOISE"), holds=(SAME,)),
    Row("READNOISE of a different shape", make.shaped("READNOISE", lambda a: a[:3]), holds=(SAME,)),
    Row("IVAR of a different shape", make.shaped("IVAR", lambda a: a[:, 1:]), "IVAR has shape (192, 103)"),
    Row("an image with one axis", make.shaped("IMAGE", lambda a: a[0]), "must be an image with 2 axes"),
    Row("an image with three axes", make.shaped("IMAGE", lambda a: a[None]), "must be an image with 2 axes"),
    Row("an image without rows", make.shaped("all", lambda a: a[:0]), "must be an image with 2 axes"),
    Row("an image of one pixel", make.shaped("all", lambda a: a[:1, :1]), "no bin has data",
        holds=(everywhere("all bins NODATA, EMPTY", Status.EMPTY),)),
    Row("10 more rows and columns than the PSF's CCD", make.shaped("all", lambda a: np.pad(a, ((0, 10), (0, 10)))),
        "the image has 202 x 114 pixels", holds=(SAME,)),
    Row("the last columns missing", make.shaped("all", lambda a: a[:, :95]),
        holds=(like("with these pixels masked", make.ivar(0, np.s_[:, 95:])),)),
    Row("the last rows missing", make.shaped("all", lambda a: a[:150]),
        holds=(like("with these pixels masked", make.ivar(0, np.s_[150:])),)),
)

CROSSES = "fibre 3 is dropped: its trace is not right of that of fibre 2"
ONE = (dropped(2), APART)
BAD_PSF = (
    *(Row(f"{name} of fibre 2 NaN", make.coefficients(name, nan, 2, term=1),
          "fibre 2 is dropped: its PSF has values that are not finite", ONE)
      for name in ("XTRACE", "YTRACE", "GHSIGX", "GH-1-0")),
    Row("GHSIGX of fibre 2 Inf", make.coefficients("GHSIGX", inf, 2), "values that are not finite", ONE),
    Row("XTRACE NaN in the first fibre of a bundle", make.coefficients("XTRACE", nan, 0), holds=(dropped(0), APART)),
    Row("XTRACE NaN in the last fibre of a bundle", make.coefficients("XTRACE", nan, 4), holds=(dropped(4), APART)),
    Row("XTRACE NaN in all fibres of a bundle", make.coefficients("XTRACE", nan, *range(5)),
        holds=(dropped(*range(5)), APART)),
    Row("XTRACE NaN in all fibres", make.coefficients("XTRACE", nan),
        "no fibre can be extracted (fibre 0: its PSF has"),
    Row("sigma 0", make.coefficients("GHSIGX", 0, 2), "fibre 2 is dropped: its PSF has sigma 0 pixels", ONE),
    Row("sigma 0, all fibres", make.coefficients("GHSIGX", 0), "no fibre can be extracted (fibre 0: its PSF"),
    Row("negative sigma", make.coefficients("GHSIGY", -1, 2), "fibre 2 is dropped: its PSF has sigma -1 pixels", ONE),
    *(Row(f"sigma of {value:g} pixels", make.coefficients("GHSIGX", value, 2),
          f"fibre 2 is dropped: its PSF has sigma {value:.3g} pixels", ONE) for value in (100.0, 1e6, 1e300)),
    *(Row(f"GH-2-2 of {value:g}", make.coefficients("GH-2-2", value, 2),
          f"fibre 2 is dropped: its spots hold 1 of their light, with terms of up to {value:.3g}", ONE)
      for value in (1e6, 1e300)),
    Row("GH-0-0 of 0", make.coefficients("GH-0-0", 0, 2), "fibre 2 is dropped: its spots hold 0 of their light", ONE),
    Row("negative GH-0-0", make.coefficients("GH-0-0", -1, 2), "its spots hold -1 of their light", ONE),
    Row("a tail that grows outwards", make.tails("TAILINDE", -1e300, 2), "fibre 2 is dropped: its tail grows outwards",
        (dropped(2),)),
    Row("a tail of huge amplitude", make.tails("TAILAMP", 1e300, 2), "with terms of up to 1e+300", (dropped(2),)),
    Row("the trace at x = 1e300", make.coefficients("XTRACE", 1e300, 2), "fibre 2 is dropped: its trace is off the CCD",
        ONE),
    Row("the trace at x = -1e5", make.coefficients("XTRACE", -1e5, 2), "its trace is off the CCD", ONE),
    Row("constant y", make.coefficients("YTRACE", 90, 2), "its y is not monotonic in wavelength", ONE),
    Row("y that reverses direction", make.coefficients("YTRACE", 300, 2, term=2), "its y is not monotonic", ONE),
    Row("two identical traces", make.trace_of(3, 2), CROSSES, (dropped(3), APART)),
    Row("two traces 0.4 pixels apart", make.trace_of(3, 2, 0.4), CROSSES, (dropped(3), APART)),
    Row("two traces that cross in the middle", make.trace_of(3, 2, 0, 7.0), CROSSES, (dropped(3), APART)),
    Row("two traces that cross near the end", make.trace_of(3, 4, -7.0, 14.0), CROSSES, (dropped(3), APART)),
    Row("a trace equal to that of the next fibre", make.trace_of(2, 3),
        "fibre 2 is dropped: its trace is not left of that of fibre 3", ONE),
    Row("two traces swapped", make.swapped, "fibre 1 is dropped: its trace is not left of that of fibre 2",
        (dropped(1, 2), APART)),
    *(Row(f"no {key}", make.keyword(key, None), f"the PSF's header needs an integer {key}")
      for key in ("HSIZEX", "HSIZEY", "NPIX_X", "NPIX_Y")),
    *(Row(f"{key} {value}", make.keyword(key, value), says) for key, value, says in (
        ("HSIZEX", 0, "HSIZEX is 0, must be between 1 and 64"), ("HSIZEX", 65, "HSIZEX is 65, must be between"),
        ("HSIZEX", 8.5, "needs an integer HSIZEX"), ("HSIZEX", "x", "needs an integer HSIZEX"),
        ("NPIX_X", 10**9, "NPIX_X is 1000000000, must be between"),
        ("WAVEMIN", 6200.0, "must be two ascending wavelengths"),
        ("PSFERR", -1.0, "PSFERR is -1.0, must be a number, 0 or more"), ("PSFERR", "x", "PSFERR is 'x', must be"))),
    Row("no WAVEMIN", make.keyword("WAVEMIN", None), "must be two ascending wavelengths"),
    Row("no WAVEMAX of the trace", make.keyword("WAVEMAX", None, hdu=0), "must be two ascending wavelengths"),
    Row("no PSFTYPE", make.keyword("PSFTYPE", None, hdu=None), "not a PSF (no PSFTYPE)"),
    Row("no PSFVER", make.keyword("PSFVER", None, hdu=None), "without a version; must be"),
    Row("an unknown PSFTYPE", make.keyword("PSFTYPE", "SPOTS", hdu=None), "PSF of type 'SPOTS', version 3; must be"),
    Row("BUNDLE NaN", make.coefficients("BUNDLE", nan, 2), "BUNDLE of fibre 2 is nan, must be a whole number"),
    Row("a fibre of the last bundle among those of the first", make.coefficients("BUNDLE", 1, 2),
        "BUNDLE of fibre 3 is 0, as for earlier fibres that are not adjacent"),
    Row("no GHSIGX", make.parameters(lambda name: name != "GHSIGX"), "the PSF has no parameter GHSIGX"),
    Row("no GH-i-j", make.parameters(lambda name: not name.startswith("GH-")), "the PSF has no parameters GH-i-j"),
    Row("no tail", make.parameters(lambda name: not name.startswith("TAIL")), holds=(SAME,)),
    Row("no PSFERR", make.keyword("PSFERR", None), holds=(SAME,)),
)

ALL_FIBRES = first_rows_of("all fibres", many(make.nothing))
COUNTS = (
    *(Row(f"fibres in the PSF: {number}", fibres(number), holds=(shaped(number, 8),))
      for number in (1, 24, 25, 499, 500)),
    *(Row(f"fibres of 30: {number}", many(make.options("-n", str(number))), holds=(shaped(number, 8), ALL_FIBRES))
      for number in (1, 24, 25, 26)),
    Row("the last fibre of 30", many(make.options("-s", "29", "-n", "1")),
        holds=(first_rows_of("all fibres", many(make.nothing), 29),)),
    Row("11 fibres of 10", make.options("-n", "11"), "fibres 0 to 10 were requested"),
    Row("from fibre 10 of 10 on", make.options("-s", "10"), "has fibres 0 to 9"),
    Row("0 fibres", make.options("-n", "0"), "nspec is 0, must be 1 or more"),
)

ENDS = Holds("bins whose spots are off the CCD are NODATA, all others have data", _ends)
GRIDS = (
    Row("two bins", make.grid("6012,6013,1.0"), holds=(shaped(FIBRES, 2),)),
    Row("one bin", make.grid("6012,6012.4,1.0"), "is a single bin, must be at least two"),
    Row("a step of 20 Angstrom", make.grid("6012,6098,20"), holds=(shaped(FIBRES, 5),)),
    Row("a step far below the resolution", make.grid("6012,6098,0.1"), "bins of 0.1 Angstrom cannot be told"),
    Row("10^11 bins", make.grid("6012,6098,1e-9"), "has more than 1000000 bins: raise the step"),
    Row("a step of 1e-300", make.grid("6012,6098,1e-300"), "has more than 1000000 bins: raise the step"),
    Row("a last wavelength of 1e300", make.grid("6012,1e300,1"), "has more than 1000000 bins: raise the step"),
    Row("up to the ends of the PSF", make.grid("6000,6110,0.85"), holds=(ENDS,)),
    Row("beyond the end of the PSF", make.grid("6050,6200,1"), "6050 to 6200 Angstrom were requested"),
    Row("before the start of the PSF", make.grid("5990,6050,1"), "5990 to 6050 Angstrom were requested"),
    Row("descending wavelengths", make.grid("6098,6012,1"), "must ascend"),
    Row("a NaN wavelength", make.grid("6012,nan,1"), "must be finite numbers"),
)

TABLES = (
    Row("no FIBERMAP", make.without("FIBERMAP"), holds=(SAME,)),
    Row("rows in reverse order", make.fibermap(lambda t: t[::-1]), holds=(SAME,)),
    Row("every row twice", make.fibermap(lambda t: np.concatenate([t, t])), holds=(SAME,)),
    Row("missing rows", make.fibermap(lambda t: t[:3]), "the fibermap has no row for 7 fibres (first FIBER 3)"),
    Row("no rows", make.fibermap(lambda t: t[:0]), "the fibermap has no rows"),
    Row("a unit that is not text", make.unit, holds=(SAME,)),
)

Section = tuple[str, tuple[Row, ...]]
READ: tuple[Section, ...] = (
    ("Pixels and inverse variance", PIXELS), ("Masks", MASKS), ("Types and byte orders", STORED), ("Shapes", SHAPES),
    ("PSF", BAD_PSF), ("Numbers of fibres", COUNTS), ("Grids", GRIDS), ("Fibermap", TABLES))


@dataclass(frozen=True)
class Surroundings:
    """A fault of the environment, as a shell command; {run} is the program, {folder} the folder of its files.

    says: part of its message; with code 0 the frame is bitwise equal to that of a good environment
    slow: runs in .ci/full only
    """

    fault: str
    shell: str
    code: int = 0
    says: str = ""
    slow: bool = True


SURROUNDINGS = (
    Surroundings("no HOME", "env -u HOME {run}"),
    Surroundings("a HOME that does not exist", "HOME={folder}/nowhere {run}"),
    Surroundings("a TMPDIR that does not exist", "TMPDIR={folder}/nowhere {run}"),
    Surroundings("locale C and a file name in UTF-8", "cp {folder}/image.fits {folder}/é.fits; LC_ALL=C PYTHONUTF8=0 "
                 "PYTHONCOERCECLOCALE=0 {run} -i {folder}/é.fits", slow=False),
    Surroundings("a locale that does not exist", "LC_ALL=xx_YY.utf9 {run}"),
    Surroundings("16 open files (ulimit -n)", "ulimit -n 16; {run}"),
    Surroundings("a stack of 256 kB (ulimit -s)", "ulimit -s 256; {run}"),
    Surroundings("4 GB of address space (ulimit -v)", "ulimit -v 4000000; {run}"),
    # otherwise Python would keep the first 8 kB of the byte code of edited modules
    Surroundings("files of at most 8 kB (ulimit -f)", "export PYTHONDONTWRITEBYTECODE=1; ulimit -f 8; {run}", 3,
                 "cannot be written: File too large; no file was changed"),
    # also for the kernels' last folder, for which no file may be tried
    Surroundings("files of 0 bytes (ulimit -f), as on a full disk", "export PYTHONDONTWRITEBYTECODE=1; ulimit -f 0; "
                 "{run}", 3, "cannot be written: File too large; no file was changed", slow=False),
    Surroundings("one second of CPU time (ulimit -t)",      # most of it is spent before: a run by itself may take less
                 f"ulimit -t 1; {shlex.quote(sys.executable)} -c 'import os, sys, time; next(t for t in "
                 "iter(time.process_time, None) if t > 0.8); os.execv(sys.argv[1], sys.argv[1:])' {run}; exit $?",
                 137, "Killed"),
    Surroundings("one second of CPU time, as a soft limit (ulimit -St)",
                 f"ulimit -St 1; {shlex.quote(sys.executable)} -c 'import os, sys, time; next(t for t in "
                 "iter(time.process_time, None) if t > 0.8); os.execv(sys.argv[1], sys.argv[1:])' {run}", 75,
                 "; start again"),
    Surroundings("standard output, error and input closed", "{run} <&- >&- 2>&-"),
    Surroundings("standard error on a full disk", "{run} 2>/dev/full"),
    Surroundings("standard error on a full disk, and an invalid option", "{run} -n 0 2>/dev/full", 2),
    Surroundings("standard output on a full disk", "{run} --test {folder}/good.fits >/dev/full", 3,
                 "standard output cannot be written: No space left on device", slow=False),
    Surroundings("a current folder that does not exist", "mkdir {folder}/a; cd {folder}/a; rmdir {folder}/a; {run}"),
    Surroundings("a current folder that does not exist, and an output in it", "mkdir {folder}/a; cd {folder}/a; rmdir "
                 "{folder}/a; {run} -o frame.fits", 2, "the current folder no longer exists"),
    Surroundings("umask 077", "umask 077; {run}"),
    Surroundings("OMP_NUM_THREADS that is not a number", "OMP_NUM_THREADS=abc {run}"),
    Surroundings("OMP_NUM_THREADS of 0", "OMP_NUM_THREADS=0 {run}", slow=False),
    Surroundings("OMP_NUM_THREADS that is a list", "OMP_NUM_THREADS=2,1 {run}"),
    Surroundings("warnings as errors (PYTHONWARNINGS)", "PYTHONWARNINGS=error {run}"),
    Surroundings("two concurrent commands that write the same file", "{run} & {run}; one=$?; wait $! && exit $one",
                 slow=False),
)


@dataclass(frozen=True)
class Writing:
    """A fault while the frame is written. Exit code 3: one line with `says`, and only the old file remains.
    Code 0: the frame is complete."""

    fault: str
    around: outside.Around
    says: str = ""
    code: int = 3


LITTLE = "cannot be written: "
WHOLE = 135360       # bytes of the frame; test_faults_around.py measures it
WRITING = (
    *(Writing(f"a file size limit of {size} bytes", outside.grows_to(size), LITTLE)
      for size in (0, 1, 2880, 5760, 11520, 40000, 80000, 120000, 130000)),
    Writing("a file size limit one byte below the size of the frame", outside.grows_to(WHOLE - 1), LITTLE),
    Writing("a file size limit equal to the size of the frame", outside.grows_to(WHOLE), code=0),
    *(Writing(f"a disk of {size}", outside.room_for(size), LITTLE)
      for size in ("4k", "8k", "16k", "64k", "100k", "120k")),
    Writing("the file cannot be created", outside.fails("open", outside.FULL), "No space left on device"),
    Writing("the file cannot be synced to disk", outside.fails("fsync", outside.BROKEN), "Input/output error"),
    Writing("the folder cannot be synced to disk", outside.fails("fsync", outside.CANNOT, call=2), code=0),
    Writing("the file cannot be renamed", outside.fails("replace", outside.FORBIDDEN), "Permission denied"),
    Writing("the final name is on another disk", outside.fails("replace", outside.OTHER_DISK), "cross-device link"),
    Writing("the folder disappears", outside.goes_away, "No such file or directory"),
)

# a lost rank: phase, kind, rank; LOST_QUICK runs every time, unless it is slow, the others in .ci/full
PHASES = ("start", "read", "share", "extract", "gather", "write", "commit")
KINDS = ("exception", "exit0", "exit3", "kill", "stop and kill", "stop")
LOST_QUICK = (("start", "kill", 1), ("read", "exception", 2), ("share", "exit0", 1), ("extract", "stop and kill", 1),
              ("extract", "exit3", 0), ("extract", "stop", 2), ("gather", "exception", 0),
              ("write", "stop and kill", 0), ("commit", "kill", 0))
# rank 2 helps rank 1 with its bundle and has no result to send
LOST = tuple((phase, kind, victim) for phase in PHASES for kind in KINDS
             for victim in (0, 1 if phase == "gather" else 2))
# with other numbers of ranks: phase, kind, victim, ranks
LOST_OF = tuple((phase, kind, ranks - 1, ranks) for phase, kind in (("share", "kill"), ("extract", "exception"),
                                                                   ("write", "stop and kill")) for ranks in (2, 7, 33))
# a slow rank: phase, rank, ranks
SLOW = (("extract", 1, 3), ("start", 1, 3), ("read", 0, 3), ("share", 2, 3), ("gather", 0, 2), ("write", 0, 5),
        ("commit", 1, 3), ("extract", 32, 33))
WHAT = {"exception": "an exception", "exit0": "it exits with code 0", "exit3": "it exits with code 3",
        "kill": "SIGKILL", "stop and kill": "SIGSTOP, SIGKILL 2 s later", "stop": "SIGSTOP, permanently"}

# a signal to one process of a run of three ranks: process, signal, phase of rank 0, exit code; None if the launcher
# determines the code. bench/kills.py measures the codes of every process under every launcher
SIGNALS_QUICK = (("keeper", "TERM", "extract", 75), ("keeper", "INT", "gather", 75), ("keeper", "HUP", "start", 75),
                 ("rank", "TERM", "write", 75), ("keeper", "KILL", "extract", None), ("proxy", "KILL", "commit", None))
SIGNALS = (("keeper", "TERM", "write", 75), ("rank", "HUP", "share", 75), ("rank", "INT", "read", 75),
           ("keeper", "INT", "start", 75), ("keeper", "HUP", "share", 75), ("rank", "TERM", "gather", 75),
           ("launcher", "KILL", "extract", None), ("launcher", "HUP", "write", None), ("proxy", "HUP", "share", None),
           ("keeper", "KILL", "commit", None), ("keeper", "USR1", "extract", 75), ("keeper", "USR2", "write", 75),
           ("rank", "XCPU", "extract", 75))
