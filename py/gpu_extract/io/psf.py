"""PSF files of the GAUSS-HERMITE family, versions 2 and 3, GAUSS-HERMITE2, and TABULATED (`psf_tables`)."""
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from astropy.io import fits

from gpu_extract.checks.sense import identity_of
from gpu_extract.data import MOST_SIDE, Array, Card, Core, IntArray, Legendre, PsfModel, Tail
from gpu_extract.errors import FileName, InputError, file_name
from gpu_extract.io.fibermap import rows_of
from gpu_extract.io.fits import find, find_optional, image_of, open_fits, refuse_other
from gpu_extract.io.headers import number_of
from gpu_extract.io.psf_tables import OWN, TYPE, VERSION, own_hdus, range_cards, read_bundles, read_core, write_tables
from gpu_extract.io.write import image_hdu, table_hdu, write_hdus
from gpu_extract.own_wave import ascend

ALLOWED = "GAUSS-HERMITE with PSFVER 2 or 3, GAUSS-HERMITE2 with PSFVER 2, or TABULATED with PSFVER 1"
DEFAULT_PSFERR = 0.01
ORIGIN = "IN_PSF"            # card of a PSF with shifted traces: the original PSF
_TAIL = {"amp": "TAILAMP", "core": "TAILCORE", "xscale": "TAILXSCA", "yscale": "TAILYSCA", "index": "TAILINDE"}
_ADVICE = "make the PSF again, or give another one"
MOST_HALF = MOST_SIDE // 2   # half-size of a spot in pixels: HSIZEX, HSIZEY
MOST_DEGREE = 20             # of GH-i-j
MOST_TERMS = 1 << 24         # numbers of all GH-i-j together
MOST_PIXELS = 1 << 20        # of a CCD along an axis


@dataclass(frozen=True)
class _Table:
    """The parameter table: name -> series, with its header for messages."""

    series: Mapping[str, Legendre]
    header: fits.Header

    def __getitem__(self, name: str) -> Legendre:
        if name not in self.series:
            raise InputError(f"the PSF has no parameter {name}; {_ADVICE}")
        return self.series[name]

    def keyword(self, name: str, most: int) -> int:
        """An integer keyword of the table's header, 1 or more."""
        number = _whole(self.header.get(name))
        if number is None:
            raise InputError(f"the PSF's header needs an integer {name}; {_ADVICE}")
        if not 1 <= number <= most:
            raise InputError(f"{name} is {number}, must be between 1 and {most}; {_ADVICE}")
        return number


def _whole(value: Any) -> int | None:
    """The integer of a card; None if it is not one."""
    number = number_of(value)
    return int(number) if number.is_integer() else None


def read_psf(path: FileName, *, check: bool = True) -> PsfModel:
    """The PSF in a file: traces, cores, tail (None if TAILAMP is 0 everywhere) and geometry.

    psferr is the keyword PSFERR, else 0.01. (PSFERROR of the files in use is not it.)

    Raises InputError for a file that cannot be read, an unknown type or version, and missing parameters.
    """
    name = file_name(path)
    with open_fits(path, check=check) as hdus:
        refuse_other(hdus, "a PSF")
        kind, version = _kind(hdus)
        if (kind, version) in (("GAUSS-HERMITE", 3), (TYPE, VERSION)):
            x, y = (_trace(find(hdus, hdu)) for hdu in ("XTRACE", "YTRACE"))
            table = _read_table(find(hdus, "PSF")) if version == 3 else _Table({}, find(hdus, "STAMPS").header)
        elif version == 2 and kind in ("GAUSS-HERMITE", "GAUSS-HERMITE2"):
            if len(hdus) < 2:
                raise InputError(f"no HDU 1 with the PSF's parameters; {_ADVICE}")
            table = _read_table(hdus[1])
            x, y = table["X"], table["Y"]
        else:
            raise InputError(f"PSF of type {kind!r}, version {version}; must be {ALLOWED}")
        headers = [h.header for h in hdus]
        identity = {key: word for header in reversed(headers) for key, word in identity_of(header).items()}
        origin = next((str(header[ORIGIN]) for header in headers if ORIGIN in header), None)
        identity |= {} if origin is None else {ORIGIN: origin}
        parts = _tabulated(hdus, table, len(x.coeff)) if kind == TYPE else _gauss_hermites(kind, table)
        shape = table.keyword("NPIX_Y", MOST_PIXELS), table.keyword("NPIX_X", MOST_PIXELS)
        own, psferr = find_optional(hdus, OWN), _psferr(headers)
        waves = None if own is None else _own(own, x)
        try:
            return PsfModel(x, y, **parts, shape=shape, psferr=psferr, name=name, identity=identity, own=waves)
        except InputError as error:
            raise InputError(f"{error}; {_ADVICE}") from error


def _own(hdu: Any, x: Legendre) -> Legendre:
    """The fibres' own wavelengths, which must exist for each, ascend, and be above 0."""
    own = _trace(hdu)
    if len(own.coeff) != len(x.coeff) or not ascend(own):
        raise InputError(f"{OWN} must have a series for each of the {len(x.coeff)} fibres, with ascending wavelengths "
                         f"above 0; {_ADVICE}")
    return own


def _kind(hdus: fits.HDUList) -> tuple[str, int]:
    """PSFTYPE and PSFVER, from the first HDU that has them."""
    for hdu in hdus:
        if "PSFTYPE" in hdu.header and "PSFVER" in hdu.header:
            version = _whole(hdu.header["PSFVER"])
            if version is None:
                break
            return str(hdu.header["PSFTYPE"]).strip(), version
    types = [str(h.header["PSFTYPE"]) for h in hdus if "PSFTYPE" in h.header]
    what = f"a PSF of type {types[0]!r} without a version" if types else "not a PSF (no PSFTYPE)"
    raise InputError(f"{what}; must be {ALLOWED}")


def _tabulated(hdus: fits.HDUList, table: _Table, nfibre: int) -> dict[str, Any]:
    """The specific part of a tabulated PSF."""
    low, high = (table.header.get(key) for key in ("WAVEMIN", "WAVEMAX"))
    domain = _series(np.zeros((1, 1)), low, high, "STAMPS")
    core, stamp = read_core(hdus, (domain.wmin, domain.wmax), nfibre)
    return {"cores": (core,), "tail": None, "stamp": stamp, "offset": (stamp[0] // 2 - 0.5, stamp[1] // 2 - 0.5),
            "bundle": read_bundles(hdus, nfibre)}


def _gauss_hermites(kind: str, table: _Table) -> dict[str, Any]:
    """The specific part of a PSF with one or two Gauss-Hermite components."""
    hx, hy = (table.keyword(key, MOST_HALF) for key in ("HSIZEX", "HSIZEY"))
    stamp, offset = (2 * hy + 1, 2 * hx + 1), (hy - 0.5, hx - 0.5)
    two = kind == "GAUSS-HERMITE2"
    cores = [Core(table["GHSIGX"], table["GHSIGY"], _gauss_hermite(table, "GH"),
                  table["GHNSIG"] if two else None)]
    if two:
        cores.append(Core(table["GHSIGX2"], table["GHSIGY2"], _gauss_hermite(table, "GH2")))
        stamp, offset = (2 * hy, 2 * hx), (float(hy), float(hx))
    return {"cores": tuple(cores), "tail": _tail(table), "stamp": stamp, "offset": offset, "bundle": _bundles(table)}


def _trace(hdu: Any) -> Legendre:
    coeff = image_of(hdu).astype(np.float64)
    return _series(coeff, hdu.header.get("WAVEMIN"), hdu.header.get("WAVEMAX"), hdu.name)


def _read_table(hdu: Any) -> _Table:
    """PARAM and COEFF, with WAVEMIN and WAVEMAX of each row (version 2) or of the header (3)."""
    rows = rows_of(hdu)
    columns = rows.dtype.names or ()
    missing = [c for c in ("PARAM", "COEFF") if c not in columns]
    if missing:
        raise InputError(f"the PSF's table has no column {' and no '.join(missing)}; {_ADVICE}")
    if rows.dtype["COEFF"].base.kind not in "fiu":
        raise InputError(f"COEFF of the PSF's table is of type {rows.dtype['COEFF'].base}, must be numbers; {_ADVICE}")
    series: dict[str, Legendre] = {}
    for row in rows:
        name = str(row["PARAM"]).strip()
        if name in series:
            raise InputError(f"the PSF has two parameters {name}; {_ADVICE}")
        low, high = ((row[k] if k in columns else hdu.header.get(k)) for k in ("WAVEMIN", "WAVEMAX"))
        coeff = np.array(row["COEFF"], np.float64)
        if coeff.ndim != 2:
            raise InputError(f"{name} has coefficients of shape {coeff.shape}, must be (fibre, coefficient); {_ADVICE}")
        series[name] = _series(coeff, low, high, name)
    return _Table(series, hdu.header)


def _series(coeff: Array, low: Any, high: Any, what: str) -> Legendre:
    wmin, wmax = number_of(low), number_of(high)
    if not (np.isfinite(wmin) and np.isfinite(wmax) and wmin < wmax):
        raise InputError(f"{what} has WAVEMIN {low} and WAVEMAX {high}; must be two ascending wavelengths")
    return Legendre(coeff, wmin, wmax)


def _gauss_hermite(table: _Table, prefix: str) -> Legendre:
    """GH-i-j of a core as one series, gh[j, i]; terms that the file leaves out are 0."""
    terms = {(int(m[2]), int(m[1])): table[m[0]]
             for m in (re.fullmatch(prefix + r"-(\d{1,9})-(\d{1,9})", name, re.ASCII) for name in table.series) if m}
    if not terms:
        raise InputError(f"the PSF has no parameters {prefix}-i-j; {_ADVICE}")
    shapes = {(s.coeff.shape, s.wmin, s.wmax) for s in terms.values()}
    if len(shapes) > 1:
        raise InputError(f"the parameters {prefix}-i-j differ in shape or wavelength range; {_ADVICE}")
    ny, nx = (max(term[axis] for term in terms) + 1 for axis in (0, 1))
    shape, wmin, wmax = shapes.pop()
    if max(ny, nx) > MOST_DEGREE + 1 or ny * nx * np.prod(shape) > MOST_TERMS:
        raise InputError(f"the parameters {prefix}-i-j go up to degrees {nx - 1} and {ny - 1} with {np.prod(shape)} "
                         f"coefficients each, at most degree {MOST_DEGREE} and {MOST_TERMS} coefficients in all are "
                         f"allowed; {_ADVICE}")
    coeff = np.zeros((ny, nx, *shape))
    for (j, i), series in terms.items():
        coeff[j, i] = series.coeff
    return Legendre(coeff, wmin, wmax)


def _tail(table: _Table) -> Tail | None:
    """The tail; None if the file has none or its amplitude is 0 everywhere."""
    if "TAILAMP" not in table.series or not table["TAILAMP"].coeff.any():
        return None
    return Tail(**{field: table[name] for field, name in _TAIL.items()})


def _bundles(table: _Table) -> IntArray | None:
    """Bundle number of each fibre: the constant term of BUNDLE; None if the file has none."""
    if "BUNDLE" not in table.series:
        return None
    number = table["BUNDLE"].coeff[:, 0]
    whole = np.abs(number - np.rint(number)) < 0.01
    if not whole.all():
        first = int(np.argmin(whole))
        raise InputError(f"BUNDLE of fibre {first} is {number[first]:g}, must be a whole number; {_ADVICE}")
    return np.rint(number).astype(np.int64)


def _psferr(headers: list[fits.Header]) -> float:
    value = next((h["PSFERR"] for h in headers if "PSFERR" in h), DEFAULT_PSFERR)
    psferr = number_of(value)
    if not (np.isfinite(psferr) and psferr >= 0):
        raise InputError(f"PSFERR is {value!r}, must be a number, 0 or more; {_ADVICE}")
    return psferr


def write_psf(path: FileName, psf: PsfModel, *, cards: Sequence[Card] = (), status: IntArray | None = None,
              continuum: Legendre | None = None, tables: Mapping[str, np.ndarray] | None = None) -> None:
    """Write a PSF with one core as GAUSS-HERMITE, PSFVER 3, one with tabulated spots as TABULATED, PSFVER 1.

    status: (nfibre,) written as the parameter STATUS; continuum: of the arcs, written as CONT, which no reader of PSFs
    uses; tables: further tables of the file, by name

    Raises InputError if that format cannot hold the PSF: two cores, an even stamp, or parameters over different
    wavelength ranges. Raises OutputError if the file cannot be written.
    """
    if psf.tabulated:
        for what, given in (("STATUS", status), ("CONT", continuum)):
            if given is not None:
                raise InputError(f"{psf.name}: a TABULATED file cannot hold {what}; write the PSF without it")
        write_tables(path, psf, cards=cards, tables=tables)
        return
    hy, hx = psf.stamp[0] // 2, psf.stamp[1] // 2
    rows = _parameters(psf)
    if status is not None:
        rows["STATUS"] = replace(psf.cores[0].sigma_x, coeff=status[:, np.newaxis].astype(np.float64))
    if continuum is not None:
        rows["CONT"] = continuum
    ranges = {(s.wmin, s.wmax) for s in rows.values()}
    if len(psf.cores) != 1 or psf.offset != (hy - 0.5, hx - 0.5) or len(ranges) != 1:
        raise InputError(f"{psf.name}: must have one core, a stamp of odd size, and one wavelength range for all "
                         "parameters except the traces, to be written as GAUSS-HERMITE version 3")
    (wmin, wmax), = ranges
    ncoef = max(s.coeff.shape[1] for s in rows.values())
    data = np.zeros(len(rows), [("PARAM", "S8"), ("COEFF", np.float64, (psf.nfibre, ncoef)),
                                ("LEGDEGX", np.int32), ("LEGDEGW", np.int32)])
    for row, (name, series) in zip(data, rows.items(), strict=True):
        row["PARAM"], row["LEGDEGW"] = name, series.coeff.shape[1] - 1
        row["COEFF"][:, :series.coeff.shape[1]] = series.coeff
    fibres = (Card("FIBERMIN", 0), Card("FIBERMAX", psf.nfibre - 1))
    kind = (Card("PSFTYPE", "GAUSS-HERMITE"), Card("PSFVER", 3))
    text = Card("PSFVER", "3")           # specter expects text in the table's header
    degree = psf.cores[0].gh.coeff.shape
    table = (kind[0], text, Card("NPIX_X", psf.shape[1]), Card("NPIX_Y", psf.shape[0]), Card("HSIZEX", hx),
             Card("HSIZEY", hy), *fibres, Card("NPARAMS", len(rows)), Card("LEGDEG", ncoef - 1),
             Card("GHDEGX", degree[1] - 1), Card("GHDEGY", degree[0] - 1), Card("WAVEMIN", wmin, "Angstrom"),
             Card("WAVEMAX", wmax, "Angstrom"), Card("PSFERR", psf.psferr, "fractional error of the model"))
    write_hdus(path, [
        image_hdu(psf.x.coeff, "XTRACE", cards=(*cards, *kind, *fibres, *range_cards(psf.x)), primary=True),
        image_hdu(psf.y.coeff, "YTRACE", cards=(*fibres, *range_cards(psf.y))),
        table_hdu(data, "PSF", cards=table),
        *(table_hdu(content, name) for name, content in (tables or {}).items()), *own_hdus(psf)])


def _parameters(psf: PsfModel) -> dict[str, Legendre]:
    """The rows of the parameter table in the usual order; a missing tail has amplitude 0."""
    core = psf.cores[0]
    rows = {"GHSIGX": core.sigma_x, "GHSIGY": core.sigma_y}
    for j, of_y in enumerate(core.gh.coeff):
        for i, coeff in enumerate(of_y):
            rows[f"GH-{i}-{j}"] = replace(core.gh, coeff=coeff)
    constant = {"amp": 0.0, "core": 1.0, "xscale": 1.0, "yscale": 1.0, "index": 2.0}
    for field, name in _TAIL.items():
        rows[name] = getattr(psf.tail, field) if psf.tail else core.sigma_x.same(constant[field])
    if psf.bundle is not None:
        rows["BUNDLE"] = replace(core.sigma_x, coeff=psf.bundle[:, np.newaxis].astype(np.float64))
    return rows
