"""The common part of all programs: parsing, logging, and the conversion of errors to one line and an exit code."""
from gpu_extract.cli.common.main import NO_PROCESS, explain, run_main
from gpu_extract.cli.common.messages import (
    LEVELS,
    complain,
    log,
    on_terminal,
    printable,
    say,
    show_progress,
    start_logging,
)
from gpu_extract.cli.common.parser import GRID, NAMES, NUMBERS, Parser, add_common_options, separated
from gpu_extract.cli.common.process import (
    ENDING,
    THREAD_VARIABLES,
    at_least,
    check_memory,
    check_threads,
    loaded,
    loading,
    set_threads,
    settings_elsewhere,
    stop_when_asked,
    take_signals,
)
