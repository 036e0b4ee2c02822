"""The program gpu_stress: options, a call, an exit code."""
import gpu_extract.cli  # noqa: F401     its handlers of signals
