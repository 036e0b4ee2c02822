"""Kernels: the model on the pixels, chi2pix and pixmask_fraction: text/quality.h."""
from gpu_extract.device.cuda.text import number, text_kernel

ABREAST = number("ABREAST")

bins_of_row = text_kernel("quality.bins_of_row", block=128)
near_fibres = text_kernel("quality.near_fibres")
project = text_kernel("quality.project", block=128)
chi_square = text_kernel("quality.chi_square", block=128)
weigh = text_kernel("quality.weigh", block=64)
