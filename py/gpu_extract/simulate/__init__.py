"""Simulated frames with truth: cameras like those of DESI, seeded, fibre by fibre the same however much is made.

What makes frames is loaded on first use: a run that finds the embedded frame made needs the settings alone.
"""
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_extract.simulate.config import NO_DEFECTS, Defects, SimConfig

if TYPE_CHECKING:
    from gpu_extract.simulate.embedded import EmbeddedFiles, embedded_default
    from gpu_extract.simulate.files import write_simulation
    from gpu_extract.simulate.frame import Simulation, simulate

__all__ = ["Defects", "NO_DEFECTS", "EmbeddedFiles", "SimConfig", "Simulation", "embedded_default", "simulate",
           "write_simulation"]
_LATER = {"EmbeddedFiles": "embedded", "embedded_default": "embedded", "write_simulation": "files",
          "Simulation": "frame", "simulate": "frame"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'gpu_extract.simulate' has no attribute '{name}'")
    return getattr(import_module(f"gpu_extract.simulate.{_LATER[name]}"), name)
