"""The history in the format of asv (airspeed velocity), from which `asv publish` builds its site."""
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu_extract.errors import InputError
from gpu_extract.io.atomic import write_json
from gpu_perf.repository import all_commits, stand_in
from gpu_perf.store import Commit, Store

CONFIG, STAND_IN = "asv.conf.json", "commits.git"
_COLUMNS = ("result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
            "stats_q_75", "stats_number", "stats_repeat")
_ENVIRONMENT = "existing-py3"
_NOTHING = dict.fromkeys(("os", "arch", "cpu", "num_cpu", "ram"), "")        # is known about the machine
_MILLI = 1000


def export(store: Store, folder: Path, repository: Path) -> int:
    """Write asv.conf.json and the results of all series into `folder`; returns the number of result files.

    repository: the clone with the commits; if it is not a clone, asv gets a repository of their dates and subjects.
    Raises InputError if there is nothing to export.
    """
    series = store.series()
    if not series:
        raise InputError(f"{store.path} is empty: there is nothing to export; measure or import something first")
    place, branch, hashes = _repository(store, folder, repository)
    config = {"version": 1, "project": "gpu_extract", "project_url": "", "repo": str(place.resolve()),
              "branches": [branch], "environment_type": "existing", "results_dir": "results", "html_dir": "html",
              "show_commit_url": "#"}
    write_json(folder / CONFIG, config, 1)
    known = {(name, figure): _benchmark(name, figure) for name in series for measures in store.measured(name).values()
             for figure in measures}
    benchmarks = {"version": 2, **{each["name"]: each for each in known.values()}}
    write_json(folder / "results" / "benchmarks.json", benchmarks, 1)
    dates = {c.hash: replace(c, hash=hashes.get(c.hash, c.hash)) for c in store.commits()}
    written = 0
    for machine in sorted({m for name in series for m in store.machines(name)}):
        plain = _plain(machine)
        place = folder / "results" / plain
        write_json(place / "machine.json", {"machine": plain, **_NOTHING, "version": 1}, 1)
        results: dict[str, dict[str, list[Any]]] = {}
        for name in (n for n in series if machine in store.machines(n)):
            for commit, measures in store.measured(name).items():
                for figure, values in measures.items():
                    of = known[name, figure]
                    results.setdefault(commit, {})[of["name"]] = _row(of["version"], values)
        for commit, rows in results.items():
            name = f"{dates[commit].hash[:8]}-{_ENVIRONMENT}.json"
            write_json(place / name, _results(dates[commit], plain, rows), 1)
            written += 1
    return written


def _repository(store: Store, folder: Path, repository: Path) -> tuple[Path, str, dict[str, str]]:
    """The repository for asv, its branch, and the hashes of the commits there.

    The clone, if it is one and has all commits; otherwise a repository of their dates and subjects, beside the results.
    """
    commits = [c for c in store.commits() if any(c.hash in store.measured(s) for s in store.series())]
    with suppress(InputError):
        if {c.hash for c in commits} <= {c.hash for c in all_commits(repository)}:
            return repository, "HEAD", {}
    return folder / STAND_IN, "main", stand_in(folder / STAND_IN, commits)


def _benchmark(series: str, figure: str) -> dict[str, Any]:
    """The description of a figure for asv."""
    share = figure.startswith("%")
    name = f"{_plain(series.split(' on ')[0])}.{'track' if share else 'time'}_{_plain(figure.strip('% '))}"
    return {"name": name, "code": f"{series}: {figure}", "params": [], "param_names": [], "timeout": 600.0,
            "type": "track" if share else "time", "unit": "%" if share else "seconds",
            "version": hashlib.sha256(name.encode()).hexdigest()}


def _row(version: str, values: list[float]) -> list[Any]:
    """One result, in the order of the columns; version: of its benchmark."""
    least, low, middle, high, most = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return [[middle], [], version, None, None, [least], [most], [low], [high], [1], [len(values)]]


def _results(commit: Commit, machine: str, rows: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {"commit_hash": commit.hash, "env_name": _ENVIRONMENT, "date": int(commit.date * _MILLI),
            "params": {"machine": machine, **_NOTHING, "python": "3"},
            "python": "3", "requirements": {}, "env_vars": {}, "result_columns": list(_COLUMNS), "results": dict(rows),
            "durations": {}, "version": 2}


def _plain(text: str) -> str:
    """Letters, digits and _ only."""
    return "".join(c if c.isalnum() else "_" for c in text.strip())
