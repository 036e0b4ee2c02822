"""NVIDIA's own tests, where they are installed: `dcgmi diag` (DCGM) and nvbandwidth, found on PATH, run with a limit.

Both are read in their JSON modes. dcgmi: {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name", "results":
[{"entity_id", "status", "warnings"}], "test_summary"}]}]}} in DCGM 3.1 and newer; before, the outer key was "DCGM GPU
Diagnostic", statuses were in capitals, and warnings were text. nvbandwidth: {"nvbandwidth": {"testcases": [{"name",
"status", "bandwidth_matrix"}]}}, whose numbers are text, in GB/s.
"""
import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_extract.errors import InputError

LEVELS = {1: 300.0, 2: 900.0, 3: 3600.0, 4: 4 * 3600.0}     # of dcgmi -> seconds; NVIDIA: seconds, 2, 15 minutes, more
COPIES = {"host_to_device_memcpy_ce": "to the device", "device_to_host_memcpy_ce": "from it",
          "device_local_copy": "within it"}
COPIES_LIMIT = 300.0
GRACE = 30.0                # seconds for a tool to end, during which dcgmi stops the test in its daemon
SHOWN = 300                 # letters of a message

OK, WRONG, HUNG, SILENT, ABSENT = "ok", "wrong", "hung", "no answer", "absent"
BAD = (WRONG, HUNG)


@dataclass(frozen=True)
class Found:
    """The result of one tool, in one line. status: ok, wrong, hung, no answer (nothing about the GPU) or absent"""

    status: str
    line: str

    @property
    def bad(self) -> bool:
        """Whether the GPU is in doubt."""
        return self.status in BAD


@dataclass(frozen=True)
class Tool:
    """name; argv; limit in seconds; read: (status, what is said) from its JSON; source: where it comes from"""

    name: str
    argv: tuple[str, ...]
    limit: float
    read: Callable[[Mapping[str, Any]], tuple[str, str]]
    source: str


def vendor_tools(level: int, limit: float | None = None) -> list[Tool]:
    """The tools; level: of dcgmi, 1 to 4; limit: seconds for each (default: by level). Raises InputError."""
    if level not in LEVELS:
        raise InputError(f"--level is {level}, must be 1 (seconds) to 4 (hours)")
    return [Tool("dcgmi", ("dcgmi", "diag", "-r", str(level), "-j"), limit or LEVELS[level], read_diag,
                 "NVIDIA's package datacenter-gpu-manager"),
            Tool("nvbandwidth", ("nvbandwidth", "-j", "-t", *COPIES), limit or COPIES_LIMIT, read_bandwidth,
                 "github.com/NVIDIA/nvbandwidth")]


def ask(tool: Tool) -> Found:
    """Run a tool, if it is installed, and return its finding in one line."""
    path = shutil.which(tool.argv[0])
    if path is None:
        return Found(ABSENT, f"{tool.name}: not installed ({tool.source})")
    try:
        code, out, err = _run((path, *tool.argv[1:]), tool.limit)
    except OSError as error:
        return Found(SILENT, f"{tool.name}: cannot be started: {error.strerror}")
    if code is None:
        return Found(HUNG, f"{tool.name} DID NOT END within {tool.limit:g} s: give it more time (--timeout), or have "
                           "the GPU checked")
    try:
        status, said = tool.read(_json(out))
    except (ValueError, KeyError, TypeError, AttributeError):
        last = " ".join((err.strip() or out.strip() or "nothing was printed").split())
        return Found(SILENT, f"{tool.name}: no answer (exit code {code}): {last[:SHOWN]}")
    if status == OK and code != 0:
        return Found(SILENT, f"{tool.name}: no answer: exit code {code}, although {said}")
    word = {OK: "", WRONG: " FAILED:", SILENT: " no answer:"}[status]
    return Found(status, f"{tool.name}:{word} {said}")


def _run(argv: Sequence[str], limit: float) -> tuple[int | None, str, str]:
    """(exit code, output, errors) of a command in its own session; code None: it did not end in time."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=limit)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
            return None, "", ""
        except BaseException:
            process.send_signal(signal.SIGTERM)
            raise


def _json(text: str) -> Any:
    """The object in a tool's output; lines of words before it are skipped."""
    return json.JSONDecoder().raw_decode(text[text.index("{"):])[0]


def read_diag(content: Mapping[str, Any]) -> tuple[str, str]:
    """(status, what is said) of dcgmi's JSON."""
    root = content.get("DCGM Diagnostic") or content["DCGM GPU Diagnostic"]
    if root.get("runtime_error"):
        return SILENT, " ".join(str(root["runtime_error"]).split())[:SHOWN]
    tests = [test for category in root["test_categories"] for test in category.get("tests", ())]
    each = [(str(test["name"]), list(_results(test))) for test in tests]
    counts = {word: sum(_worst(results) == word for _, results in each) for word in ("pass", "warn", "fail", "skip")}
    failed = [f"{name}{_where(results)}" for name, results in each if _worst(results) == "fail"]
    if failed:
        return WRONG, "; ".join(failed)[:SHOWN]
    if not counts["pass"] and not counts["warn"]:
        return SILENT, f"none of {len(each)} tests was run"
    warned = [f"{name}{_where(results)}" for name, results in each if _worst(results) == "warn"]
    rest = [f"{counts['skip']} skipped"] * bool(counts["skip"]) + ["warns of " + "; ".join(warned)] * bool(warned)
    return OK, ", ".join([f"{counts['pass']} tests passed", *rest])[:SHOWN]


def _results(test: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(status, GPU, warning) of a test on each GPU, and of its summary."""
    for result in [*test.get("results", ()), *([test["test_summary"]] if "test_summary" in test else [])]:
        gpu = next((str(result[key]) for key in ("entity_id", "gpu_id", "gpu_ids") if key in result), "")
        warnings = result.get("warnings") or []
        warnings = [warnings] if isinstance(warnings, str) else warnings
        words = [str(w["warning"] if isinstance(w, Mapping) else w) for w in warnings]
        yield str(result["status"]).lower(), gpu, " ".join(" ".join(words).split())


def _worst(results: Sequence[tuple[str, str, str]]) -> str:
    """fail, warn, pass or skip: the first of these that any GPU has."""
    found = {status for status, _, _ in results}
    return next((word for word in ("fail", "warn", "pass") if word in found), "skip")


def _where(results: Sequence[tuple[str, str, str]]) -> str:
    """On which GPUs, and why."""
    own = [r for r in results if r[0] == _worst(results)]
    gpus = list(dict.fromkeys(gpu for _, gpu, _ in own if gpu))
    why = next((words for _, _, words in own if words), "")
    return (f" on GPU {', '.join(gpus)}" if gpus else "") + (f" ({why})" if why else "")


def read_bandwidth(content: Mapping[str, Any]) -> tuple[str, str]:
    """(status, what is said) of nvbandwidth's JSON."""
    root = content["nvbandwidth"]
    cases = root.get("testcases") or []
    failed = [str(case["name"]) for case in cases if str(case["status"]).lower() == "error"]
    if failed:
        why = root.get("error") or next((case["error"] for case in cases if case.get("error")), "")
        return WRONG, ", ".join(dict.fromkeys(failed)) + (f" ({' '.join(str(why).split())})"[:SHOWN] if why else "")
    if root.get("error"):
        return SILENT, " ".join(str(root["error"]).split())[:SHOWN]
    rates = {case["name"]: [float(v) for row in case["bandwidth_matrix"] for v in row if v != "N/A" and float(v) > 0]
             for case in cases if case["status"] == "Passed"}
    said = [f"{min(rates[name]):.1f} {words}" for name, words in COPIES.items() if rates.get(name)]
    if not said:
        return SILENT, "no copy was measured"
    return OK, f"GB/s {', '.join(said)}" + (" (the slowest GPU)" if any(len(r) > 1 for r in rates.values()) else "")
