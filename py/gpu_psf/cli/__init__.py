"""The program gpu_psf: options, a call, an exit code; one file for each command."""
