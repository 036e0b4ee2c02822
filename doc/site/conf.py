"""Settings of Sphinx for the documentation's site; build.py starts it."""
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2] / "py")]
from docstrings import as_rst  # noqa: E402

from gpu_extract import __version__  # noqa: E402

project = "gpu_extract"
author = "The gpu_extract maintainers"
version = release = __version__
language = "en_GB"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"gpu_extract {version}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_display_short_literal_types = True
python_maximum_signature_line_length = 90
add_module_names = False


def _rewrite(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst("\n".join(lines)).split("\n")


def setup(app: Any) -> None:
    """Docstrings are rewritten on their way."""
    app.connect("autodoc-process-docstring", _rewrite)
