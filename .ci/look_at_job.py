#!/usr/bin/env python3
"""Fail unless the main job left a whole frame of 50 fibres and a picture: look_at_job.py FRAME.fits PICTURE.png"""
import sys

import numpy as np
from astropy.io import fits
from matplotlib.image import imread


def main() -> int:
    """Check both files; returns the exit code."""
    with fits.open(sys.argv[1], checksum=True) as hdus:
        hdus.info()
        flux, ivar = hdus["FLUX"].data, hdus["IVAR"].data
        whole = flux.shape[0] == 50 and bool(np.isfinite(flux).all() and np.isfinite(ivar).all())
        share = float((ivar > 0).mean())
    picture = imread(sys.argv[2])
    print(f"{flux.shape[0]} fibres, {share:.1%} of the bins have data; picture {picture.shape}")
    return 0 if whole and share > 0.9 and min(picture.shape[:2]) > 300 and picture.std() > 0.01 else 1


if __name__ == "__main__":
    raise SystemExit(main())
