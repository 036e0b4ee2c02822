"""Pictures: one page about a frame, and maps of the differences of two frames. Needs matplotlib."""
from gpu_extract.figures.canvas import check_picture
from gpu_extract.figures.difference import difference_plot
from gpu_extract.figures.qa import qa_page, shown

__all__ = ["check_picture", "difference_plot", "qa_page", "shown"]
