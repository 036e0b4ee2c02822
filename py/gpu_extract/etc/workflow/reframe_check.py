"""Checks of gpu_extract on this system for ReFrame: reframe -c reframe_check.py -r

CorrectCheck extracts the shipped cut-out and compares it. RanksCheck extracts 50 fibres on one and on two ranks, and
says how many seconds it took; a site gives it references. The program is that on PATH; a site that has a module sets
modules.
"""
# ruff: noqa: RUF012     ReFrame wants lists
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_before, sanity_function


class Installed(rfm.RunOnlyRegressionTest):
    """The common part of all checks."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "gpu_extract"
    env_vars = {"OMP_NUM_THREADS": 1}
    time_limit = "15m"


@rfm.simple_test
class CorrectCheck(Installed):
    """--test: every field is within its limits."""

    executable_opts = ["--nspec", "25", "-o", "frame.fits", "--test"]

    @sanity_function
    def whole(self):
        """The line below the table confirms it, and the frame exists."""
        return sn.all([sn.assert_found(r"^all within their limits", self.stdout),
                       sn.assert_found(r"file: frame\.fits", self.stderr)])


@rfm.simple_test
class RanksCheck(Installed):
    """One rank and two: no bin is missing, and the time of the extraction."""

    ranks = parameter([1, 2])
    executable_opts = ["--nspec", "50", "-o", "frame.fits"]

    @run_before("run")
    def several(self):
        """Start the ranks with the system's launcher."""
        self.num_tasks = self.ranks

    @sanity_function
    def whole(self):
        """The number of bins with data."""
        return sn.assert_found(r"bins: 116300 \(50 fibres x 2326\)", self.stderr)

    @performance_function("s")
    def extraction(self):
        """Seconds, from the summary."""
        return sn.extractsingle(r"extract (\d\S*) s", self.stderr, 1, float)
