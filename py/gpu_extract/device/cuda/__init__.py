"""The GPU backend: kernels, and the one seam through which everything reaches a device."""
