"""The same image in other units, through the files."""
import numpy as np
import pytest
from astropy.io import fits

from edge_files import image_hdus, write_image
from gpu_extract.io.frame import read_frame


def in_units(power: int) -> fits.HDUList:
    """The small image, partly masked, with every electron counted 2^power times."""
    hdus = image_hdus()
    hdus["MASK"].data[30:60, 20:40] = 1
    hdus["MASK"].data[80:100, 12] = 1
    s = np.float32(2.0**power)
    hdus["IMAGE"].data *= s
    hdus["READNOISE"].data *= s
    hdus["IVAR"].data /= s**2
    return hdus


@pytest.mark.parametrize("power", [-40, -9, 20, 40])
def test_in_units_of_a_power_of_two_through_files(extract, files, power):
    """Files hold single precision, in which a power of two loses nothing: flux, ivar, R and flags are bitwise equal."""
    write_image(files.image.with_name("whole.fits"), in_units(0))
    write_image(files.image.with_name("other.fits"), in_units(power))
    frames = []
    for name in ("whole", "other"):
        output = files.output.with_name(f"{name}.fits")
        assert extract("-i", files.image.with_name(f"{name}.fits"), "-o", output).code == 0
        frames.append(read_frame(output))
    reference, frame = frames
    assert (reference.mask > 0).any()
    np.testing.assert_array_equal(frame.flux, reference.flux * np.float32(2.0**power))
    np.testing.assert_array_equal(frame.ivar, reference.ivar / np.float32(2.0**power) ** 2)
    for name in ("resolution", "chi2pix", "pixmask_fraction", "mask"):
        np.testing.assert_array_equal(getattr(frame, name), getattr(reference, name), err_msg=name)
