"""Compares frames with another frame, and with the shipped cut-out."""
from gpu_extract.compare.frames import Differences, compare_frames, difference_maps, limits_for
from gpu_extract.compare.selftest import CutOut, load_cutout, self_test
from gpu_extract.compare.verdict import Comparison, Row

__all__ = ["Comparison", "CutOut", "Differences", "Row", "compare_frames", "difference_maps", "limits_for",
           "load_cutout", "self_test"]
