"""Kernels, and the seam that chooses the device; compiled ones are kept by the rules of kernel_store."""
from gpu_extract.kernels.kernel_cache import install

install()
