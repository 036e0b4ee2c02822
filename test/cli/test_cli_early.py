"""An image that is read while the program loads is the one that would be read afterwards."""

import argparse
import os
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

import gpu_extract.io.image
from edge_files import image_hdus, write_image
from gpu_extract.cli.early import Early
from gpu_extract.cli.job import Inputs, image_options
from gpu_extract.errors import InputError
from gpu_extract.io.image import read_image
from gpu_extract.simulate import embedded


@pytest.fixture
def args(tmp_path):
    """The options of a command with an image."""
    path = write_image(tmp_path / "a.fits", image_hdus())
    return argparse.Namespace(input=str(path), psf="psf.fits", ignore_checksums=False, fibermap=None, passes=1,
                              specmin=0, nspec=None)


@pytest.fixture
def reads(monkeypatch):
    """The files that are read."""
    found = []
    monkeypatch.setattr(gpu_extract.io.image, "read_image", lambda path, **how: (found.append(path),
                                                                                read_image(path, **how))[1])
    return found


def test_it_is_read_once_and_is_the_same(args, reads):
    interval = sys.getswitchinterval()
    with closing(Early(args)) as early:
        assert early.inputs() == Inputs(args.input, "psf.fits")
        image = early.image(args.input, **image_options(args))
        assert sys.getswitchinterval() == interval
    again = read_image(args.input, noise=False)
    assert reads == [args.input] and image.cards == again.cards and image.fibermap is not None
    np.testing.assert_array_equal(image.ivar, again.ivar)
    assert Early().inputs() is None and Early().image(args.input).shape == image.shape and len(reads) == 2


@pytest.mark.parametrize("renamed", [True, False])
def test_a_file_that_was_replaced_or_written_to_is_read_again(args, reads, tmp_path, renamed):
    with closing(Early(args)) as early:
        assert early.inputs() is not None
        hdus = image_hdus()
        hdus[0].header["EXPTIME"] = 901.0
        new = write_image(tmp_path / "new.fits", hdus)
        if renamed:
            os.replace(new, args.input)
        else:
            with open(args.input, "r+b") as file:
                file.write(new.read_bytes())
        assert early.image(args.input, **image_options(args)).get("EXPTIME") == 901.0
    assert len(reads) == 2


def test_what_is_wrong_is_said_when_the_image_is_asked_for(args, tmp_path):
    for path in (tmp_path / "absent.fits", tmp_path):
        args.input = str(path)
        with closing(Early(args)) as early:
            assert early.inputs() is None
            with pytest.raises(InputError, match=str(path)):
                early.image(str(path), **image_options(args))


def test_the_embedded_frame_is_read_ahead_where_it_is_there(args, reads, tmp_path, monkeypatch):
    image = args.input
    args.input = args.psf = None
    for found in (Inputs(image, "psf", "truth"), None):
        files = found and (image, "psf", "truth")
        monkeypatch.setattr(embedded, "embedded_there", lambda specmin, nspec, files=files: files)
        with closing(Early(args)) as early:
            assert early.inputs() == found
    assert reads == [image]


def test_looking_for_the_embedded_frame_loads_no_kernels(tmp_path):
    """Loading them beside the program's own imports would take twice as long."""
    script = ("import sys, gpu_extract.cli.job; "
              "from gpu_extract.simulate.embedded import embedded_there; "
              "assert embedded_there(0, 25) is None; "
              "assert not {'numba', 'astropy', 'gpu_extract.simulate.frame'} & {*sys.modules}")
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
