"""TALP's metrics as a table, with pypop's load balance and the comparison with a reference run."""
from gpu_perf.tables import NONE, Table, number, percent
from gpu_perf.talp import METRICS, Talp
from gpu_perf.webpage import Report

ROUNDING = 0.0051       # TALP writes two digits


def report_of(talp: Talp, reference: Talp | None = None) -> Report:
    """The regions side by side, and disagreements of the file's metrics with its times."""
    when = f", {talp.timestamp}" if talp.timestamp else ""
    title = f"Metrics of TALP (DLB {talp.version or 'of an unknown version'}{when})"
    whole = talp.regions[0]
    what = (f"{whole.ranks} MPI ranks, {whole.cpus} CPUs, {whole.nodes} node{'s' * (whole.nodes != 1)}"
            if whole.ranks else f"no MPI, {whole.cpus} CPU{'s' * (whole.cpus != 1)}")
    return Report(title, disagreements(talp), [metric_table(talp, reference)], [what])


def disagreements(talp: Talp) -> list[str]:
    """Metrics in the file that disagree with its times."""
    return [f"{region.name}: the file says {METRICS[key][0]} {region.stated[key]:.2f}, its times give {value:.2f}: it "
            "comes from another version of TALP, or was changed" for region in talp.regions
            for key, value in region.metrics().items()
            if key in region.stated and abs(region.stated[key] - value) > ROUNDING]


def metric_table(talp: Talp, reference: Talp | None = None) -> Table:
    """A row for each metric, a column for each region."""
    each = [{**r.stated, **r.metrics()} for r in talp.regions]
    rows = [("  " * depth + name, *(percent(values.get(key)) for values in each))
            for key, (name, depth) in METRICS.items()]
    rows.append(("load balance of pypop (a difference)", *(percent(_additive(values)) for values in each)))
    if reference is not None:
        known = {r.name: r for r in reference.regions}
        pairs = [(r, known.get(r.name)) for r in talp.regions]
        scaling = [None if old is None else old.useful / r.useful for r, old in pairs]
        rows += [("computation scaling", *map(percent, scaling)),
                 ("global efficiency", *(percent(None if s is None else s * values["parallelEfficiency"])
                                         for s, values in zip(scaling, each, strict=True))),
                 ("speed-up", *(NONE if old is None else number(old.elapsed / r.elapsed) for r, old in pairs))]
    rows += [(name, *(number(getattr(r, key)) for r in talp.regions)) for name, key in
             (("elapsed s", "elapsed"), ("useful s, all CPUs", "useful"), ("in MPI s, all CPUs", "mpi"))]
    return Table("Regions", ("metric", *(r.name for r in talp.regions)), tuple(rows))


def _additive(values: dict[str, float]) -> float | None:
    """1 - (most - mean) / elapsed, from TALP's quotients: MPI parallel - communication efficiency + 1."""
    keys = ("mpiParallelEfficiency", "mpiCommunicationEfficiency")
    return values[keys[0]] - values[keys[1]] + 1 if all(k in values for k in keys) else None
