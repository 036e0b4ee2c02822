"""Simulated frames with truth: cameras like those of DESI, seeded; each fibre is the same whatever else is made.

The modules that make frames are loaded on first use, because a run that finds the embedded frame needs only the
settings.
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
