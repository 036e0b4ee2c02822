"""The command line that the log of a run shows."""
import shlex
from dataclasses import fields, replace

from gpu_extract.cli.job import Inputs, Job, equivalent_command, settings_for
from gpu_extract.cli.options import build_parser


def test_the_command_of_a_run_spells_out_every_setting() -> None:
    """No setting keeps its default here except those without an option of their own: add new settings."""
    words = ("-i a -p b -o c -w 5760,7620,0.8 -s 3 -n 4 --core dense -r 0.1 --psferr 0.02 --bundlesize 5 "
             "--nsubbundles 2 --nwavestep 20 --tolerance 1e-07 --passes 2 --keep-cosmics --psferr-in-ivar "
             "--tail-radius 30.0 --background 1 --any-psf --keep-odd")
    args = build_parser().parse_args([*words.split(), "--preset", "desi-r", "--no-overwrite"])
    config = settings_for("r", args)
    assert {f.name for f in fields(config) if getattr(config, f.name) == f.default} == {"ndiag", "wave_factor", "model"}
    job = Job(None, None, config, None, (), Inputs("a", "b"))
    spelt = equivalent_command(args, job)
    assert sorted(shlex.split(spelt)) == sorted(["gpu_extract", *words.split()])
    alone = equivalent_command(args, replace(job, config=replace(config, passes=1)))
    assert "--tail-radius" not in alone and "--any-psf" in alone
