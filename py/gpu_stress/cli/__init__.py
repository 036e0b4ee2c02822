"""The program gpu_stress: options, a call, an exit code."""
