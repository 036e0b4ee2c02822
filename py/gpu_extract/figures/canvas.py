"""Makes and saves figures. matplotlib is loaded with the first figure, and never opens a window."""
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_extract.data import SpecMask
from gpu_extract.errors import FileName, InputError
from gpu_extract.io.atomic import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure, FigureBase

DPI = 130
QUICK = {"compress_level": 3}      # of PNG files: half the time for a tenth more bytes
INK, GREY, BLUE, ORANGE, GREEN = "#222222", "#b8b8b8", "#2166ac", "#d95f02", "#1b7837"
MASKED = "#c9c9c9"       # pixels and bins without data
# category of a bin, worst last, and its colour
CATEGORIES = (("good", "#eef3f7"), ("COSMIC", "#4daf4a"), ("ODDPIX", "#80cdc1"), ("BAD2DFIT", "#7b3294"),
              ("SOMEBADPIX", "#fdae61"), ("WEAKBIN", "#8c510a"), ("NODATA, ALLBADPIX", "#d7191c"),
              ("BADFIBER", "#222222"))


def new_figure(width: float, height: float, *, arranged: bool = True) -> "Figure":
    """An empty figure of this size in inches, for files only. Raises InputError without a usable matplotlib.

    arranged: matplotlib places all parts, which takes as long as drawing them; without it `grid` places them
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("pictures need matplotlib, which is not installed; install gpu_extract[plots], or leave the "
                         "picture out") from error
    except ValueError as error:                       # also of a file that is not text
        raise InputError(f"matplotlib refuses the user's settings ({error}); correct its file matplotlibrc or the "
                         "variable MPLBACKEND, or leave the picture out") from error
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained" if arranged else "none")      # overrides the user's settings
    FigureCanvasAgg(figure)
    return figure


def check_picture(path: FileName, figure: "Figure | None" = None) -> None:
    """Raise InputError if matplotlib is missing, or cannot write the format of the name's ending."""
    known = (figure or new_figure(1, 1)).canvas.get_supported_filetypes()
    ending = os.path.splitext(os.fspath(path))[1].lstrip(".").lower()
    if ending not in known:
        raise InputError(f"{path}: a picture cannot be written as {ending or 'a file without an ending'!r}; "
                         f"end its name in .png, .pdf or .svg")


def save(figure: "Figure", path: FileName) -> None:
    """Write the figure, completely or not at all, in the format of the name's ending.

    Raises InputError if matplotlib does not know the ending, OutputError if the file cannot be written.
    """
    check_picture(path, figure)
    with atomic(path) as temporary:
        quick: dict[str, Any] = {"pil_kwargs": QUICK} if os.fspath(path).lower().endswith(".png") else {}
        figure.savefig(temporary, dpi=DPI, **quick)


def grid(part: Any, widths: Sequence[float], rows: int = 1, *, edges: tuple[float, float, float, float],
         gaps: tuple[float, float] = (0.0, 0.0), **shared: Any) -> Any:
    """Axes in rows and columns of relative `widths`, in a part of a figure that is not arranged.

    edges: margins in inches on the left, right, bottom and top; gaps: between columns, rows
    """
    width, height = (part.bbox.size / part.figure.dpi).tolist()
    left, right, bottom, top = edges
    column = (width - left - right - gaps[0] * (len(widths) - 1)) / len(widths)
    row = (height - bottom - top - gaps[1] * (rows - 1)) / rows
    places = {"left": left / width, "right": 1 - right / width, "bottom": bottom / height, "top": 1 - top / height,
              "wspace": gaps[0] / column, "hspace": gaps[1] / row}
    return part.subplots(rows, len(widths), width_ratios=widths, gridspec_kw=places, **shared)


def tidy(ax: "Axes", title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Use small type, and no frame on the top and right."""
    ax.set_title(title, fontsize=9, loc="left", color=INK)
    ax.set_xlabel(xlabel, fontsize=8, labelpad=2)
    ax.set_ylabel(ylabel, fontsize=8, labelpad=2)
    ax.tick_params(labelsize=7, length=2.5)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def log_ticks(axis: Any, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Ticks of a logarithmic axis at these steps of each decade, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def bar(figure: "FigureBase", drawn: Any, ax: Any, label: str) -> "Colorbar":
    """A slim colour bar."""
    made = figure.colorbar(drawn, ax=ax, pad=0.01, fraction=0.05, aspect=25)
    made.set_label(label, fontsize=7)
    made.ax.tick_params(labelsize=6, length=2)
    made.ax.minorticks_off()
    made.outline.set_visible(False)
    return made


def mask_category(mask: np.ndarray) -> np.ndarray:
    """Index into CATEGORIES of each bin, the worst of its bits."""
    category = np.zeros(mask.shape, dtype=np.int8)
    for number, bits in enumerate((SpecMask.COSMIC, SpecMask.ODDPIX, SpecMask.BAD2DFIT, SpecMask.SOMEBADPIX,
                                   SpecMask.WEAKBIN, SpecMask.NODATA | SpecMask.ALLBADPIX, SpecMask.BADFIBER), start=1):
        category[(mask & bits) > 0] = number
    return category


def pooled(array: np.ndarray, columns: int, worst: bool = False) -> np.ndarray:
    """Columns averaged to at most `columns` (worst: their maximum instead), so that nothing is lost between screen
    pixels."""
    step = -(-array.shape[1] // columns)
    starts = np.arange(0, array.shape[1], step)
    if worst:
        return np.maximum.reduceat(array, starts, axis=1)
    widths = np.diff(np.append(starts, array.shape[1]))
    return np.add.reduceat(array, starts, axis=1) / widths


def draw_mask(ax: "Axes", frame_mask: np.ndarray, extent: tuple[float, float, float, float]) -> None:
    """Draw fibres against wavelength, coloured by the worst bit, with the share of each."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    category = mask_category(frame_mask)
    ax.imshow(pooled(category, 700, worst=True), origin="lower", aspect="auto", extent=extent,
              interpolation="nearest", cmap=ListedColormap([colour for _, colour in CATEGORIES]), vmin=-0.5,
              vmax=len(CATEGORIES) - 0.5)
    share = [np.mean(category == k) for k in range(len(CATEGORIES))]
    ax.legend(handles=[Patch(facecolor=colour, edgecolor=GREY, lw=0.4, label=f"{name} {part:.2%}")
                       for (name, colour), part in zip(CATEGORIES, share, strict=True) if part],
              fontsize=6, loc="upper right", framealpha=0.9, handlelength=1.2)
