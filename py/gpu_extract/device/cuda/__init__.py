"""The GPU backend: kernels, and the seam through which all requests reach a device."""
