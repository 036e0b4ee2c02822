"""Kernels: how they are compiled, and cached by the rules of kernel_store."""
from gpu_extract.kernels.kernel_cache import install

install()
