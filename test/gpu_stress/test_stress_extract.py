"""The extract test runs the project's real simulator and cores, and detects wrong spectra and changed bits."""
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.errors import InternalError
from gpu_stress import extract
from gpu_stress.backend import Module
from gpu_stress.cli.stress import main
from gpu_stress.cycles import recorded
from gpu_stress.extract import FLOP_PER_BIN, Extract
from gpu_stress.spec import Spec

SPEC = Spec("extract", shape=(5, 60), dtype="float64", count=3, warmup=1)


@pytest.mark.parametrize("core", ["banded", "dense"])
def test_right_spectra_pass_and_one_changed_bit_is_seen(core):
    spec = replace(SPEC, core=core)
    good = recorded(spec)
    assert (good.status, good.errors, good.checked) == ("ok", 0, 4)
    assert good.worst < 5                                # of 7 errors
    assert good.nbytes > 10**6                           # the image and its ivar
    assert good.flop == (pytest.approx(3 * 300 * FLOP_PER_BIN) if core == "banded" else None)
    if core == "banded":
        bad = recorded(replace(spec, fault=1))
        assert (bad.status, bad.wrong, bad.worst) == ("wrong", [1], None)


def test_spectra_that_do_not_fit_the_truth_are_wrong(monkeypatch):
    real = extract.scene_of

    def brighter(grid, nfibre, seed):
        scene = real(grid, nfibre, seed)
        return replace(scene, truth=scene.truth * 1.3)

    right = Extract(SPEC, Module())
    assert right.measure() < 5
    assert np.isfinite(right._result.flux).all()
    monkeypatch.setattr(extract, "scene_of", brighter)
    made = Extract(SPEC, Module())
    assert made.measure() > made.bound


def test_without_a_frame_it_says_so(monkeypatch):
    monkeypatch.setattr(extract, "extract", lambda *_: None)
    with pytest.raises(InternalError, match="returned no frame"):
        recorded(SPEC)


def test_on_the_command_line(capsys):
    assert main(["extract", "-s", "5,60", "-c", "2"]) == 0
    assert "errors 0/5" in capsys.readouterr().out
    assert main(["extract", "--core", "fast"]) == 2
    assert "core is 'fast', must be one of banded, dense" in capsys.readouterr().err
