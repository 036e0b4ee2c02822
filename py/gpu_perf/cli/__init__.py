"""The programs gpu_perf, gpu_sweep and gpu_track: options, a call, an exit code."""
import gpu_extract.cli  # noqa: F401     its handlers of signals
