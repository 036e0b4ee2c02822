"""Simulated frames with truth: cameras like those of DESI, seeded, fibre by fibre the same however much is made."""
from gpu_extract.simulate.config import NO_DEFECTS, Defects, SimConfig
from gpu_extract.simulate.embedded import EmbeddedFiles, embedded_default
from gpu_extract.simulate.files import write_simulation
from gpu_extract.simulate.frame import Simulation, simulate

__all__ = ["Defects", "NO_DEFECTS", "EmbeddedFiles", "SimConfig", "Simulation", "embedded_default", "simulate",
           "write_simulation"]
