"""The verdict on a frame, and its table."""
from dataclasses import dataclass

from gpu_extract.compare.tolerances import Limit, Limits

_UNITS = {"flux": "sigma", "ivar": "of the ratio", "resolution": "absolute", "chi2pix": "of 1 + chi2pix",
          "mask": "of the bins", "status": "of the bins"}
_HEAD = ["field", "differences", "bins", "median", "99 %", "max", "limits", "verdict", "why this limit"]


@dataclass(frozen=True)
class Row:
    """The differences of one field: `bins` of them, judged by `limit`."""

    field: str
    bins: int
    median: float | None
    p99: float | None
    maximum: float | None
    limit: Limit

    @property
    def passed(self) -> bool:
        """Whether anything was compared, and all bounds hold."""
        limit = self.limit
        pairs = (self.median, limit.median), (self.p99, limit.p99), (self.maximum, limit.maximum)
        within = [bound is None or (got is not None and got <= bound) for got, bound in pairs]
        return self.bins > 0 and all(within)


@dataclass(frozen=True)
class Comparison:
    """The verdict on a frame: one row per field, over the fibres and wavelengths that both frames have.

    limits: the kind of comparison; fibres, waves: numbers of common ones; notes: what could not be compared
    """

    limits: Limits
    rows: tuple[Row, ...]
    fibres: int
    waves: int
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every field lies within its limits."""
        return all(row.passed for row in self.rows)

    def table(self) -> str:
        """The comparison as text: a line per field with its figures, limits and verdict."""
        cells = [_HEAD, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[k]) for line in cells) for k in range(len(_HEAD))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        title = (f"limits: {self.limits.name} ({self.limits.about}); "
                 f"{self.fibres} fibres x {self.waves} wavelengths in common")
        verdict = "all within their limits" if self.passed else "NOT within the limits: " + ", ".join(
            row.field for row in self.rows if not row.passed)
        return "\n".join([title, *lines, *self.notes, verdict])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value else "0"


def _cells(row: Row) -> list[str]:
    bounds = (row.limit.median, row.limit.p99, row.limit.maximum)
    verdict = "ok" if row.passed else "FAILED" if row.bins else "FAILED: no bins"
    return [row.field, _UNITS[row.field], str(row.bins), *map(_number, (row.median, row.p99, row.maximum)),
            " / ".join("-" if b is None else f"{b:g}" for b in bounds), verdict, row.limit.why]
