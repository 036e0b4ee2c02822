"""The program gpu_psf: options, a call, an exit code; one file for each command."""
import gpu_extract.cli  # noqa: F401     its handlers of signals
