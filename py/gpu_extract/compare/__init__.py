"""Judging frames: against another frame, and against the shipped cut-out."""
from gpu_extract.compare.frames import Comparison, Row, compare_frames, limits_for
from gpu_extract.compare.selftest import CutOut, load_cutout, self_test

__all__ = ["Comparison", "CutOut", "Row", "compare_frames", "limits_for", "load_cutout", "self_test"]
