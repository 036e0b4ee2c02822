#!/usr/bin/env python3
"""A stand-in for nvidia-cuda-mps-control, with the same options, files and answers, and a log of events with times.

The daemon needs a while until it answers, like the real one (FAKE_MPS_TAKES: seconds); with FAKE_MPS_FAILS it cannot
start.
"""
import os
import signal
import sys
import time
from pathlib import Path


def note(word: str) -> None:
    """Write a line to the log, with the time."""
    with open(os.environ["FAKE_MPS_LOG"], "a") as log:
        log.write(f"{time.time():.6f} {word} {os.environ['CUDA_MPS_PIPE_DIRECTORY']} "
                  f"{os.environ.get('CUDA_VISIBLE_DEVICES', '-')}\n")


def daemon(pid_file: Path) -> None:
    """Go into the background, and answer after a while, until told to quit."""
    pid_file.parent.stat(), Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]).stat()
    if os.fork():
        return
    os.setsid()
    time.sleep(float(os.environ.get("FAKE_MPS_TAKES", "0.3")))
    pid_file.write_text(f"{os.getpid()}\n")
    note("started")

    def stop(*_: object) -> None:
        note("stopped")
        pid_file.unlink()
        os._exit(0)
    signal.signal(signal.SIGTERM, stop)
    for _ in range(600):
        time.sleep(0.1)
    os._exit(1)


def main() -> int:
    """One call of the program."""
    pid_file = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "nvidia-cuda-mps-control.pid"
    if sys.argv[1:] == ["-d"]:
        if "FAKE_MPS_FAILS" in os.environ:
            print("Cannot find MPS control daemon process", file=sys.stderr)
            return 1
        if pid_file.exists():
            return 1
        daemon(pid_file)
        return 0
    order = sys.stdin.read().strip()
    if not pid_file.exists():
        return 1
    if order == "quit":
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
