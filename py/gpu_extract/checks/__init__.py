"""What is looked at before any work: do image and PSF belong together, which fibres and pixels are sound, how far a PSF
reaches.
"""
