"""Spectroperfectionist extraction of fibre spectra from CCD images.

The public API is loaded on first use, so that `import gpu_extract` and the
command line's ``--help`` are fast:

    from gpu_extract import extract, ExtractConfig, read_image, read_psf, write_frame
"""
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "extract": "run",
    "extract_from": "run",
    "draft": "run",
    "model": "run",
    "ExtractConfig": "config",
    "Image": "data",
    "PsfModel": "data",
    "Frame": "data",
    "Draft": "data",
    "read_image": "io.image",
    "read_psf": "io.psf",
    "read_frame": "io.frame",
    "write_frame": "io.frame",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gpu_extract' has no attribute '{name}'")
    return getattr(import_module(f"gpu_extract.{_PUBLIC[name]}"), name)
