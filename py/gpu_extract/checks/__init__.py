"""Checks before any work: whether image and PSF belong together, which fibres and pixels are usable, and how far a
PSF reaches.
"""
