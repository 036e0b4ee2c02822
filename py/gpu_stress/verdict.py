"""Whether a campaign can be trusted, and the verdict on the machine in one sentence."""
from itertools import pairwise

from gpu_perf.outcomes import FINE
from gpu_stress.rows import PAUSE, Campaign, cores_busy, gains

OTHERS = 0.25         # largest number of cores that other work keeps busy, in the mean over a set
ALIKE = 1.1           # the best repeat over the worst, and sharing over the ideal, beyond which a machine was not quiet
WELL, BETTER = 0.8, 1.1       # share of the ideal for good sharing; gain over one process that makes several worthwhile


def gpu_errors(campaign: Campaign) -> list[str]:
    """Errors that the driver reported while GPUs worked: uncorrected memory errors, and critical errors."""
    lines = []
    for index in sorted({g["index"] for s in campaign.samples for g in s["gpus"]}):
        own = [g for s in campaign.samples for g in s["gpus"] if g["index"] == index]
        counts = [g["ecc_uncorrected"] for g in own if g.get("ecc_uncorrected") is not None]
        if counts and max(counts) > counts[0]:
            lines.append(f"GPU {index} had {max(counts) - counts[0]} memory errors that it could not correct")
        xids = sorted({xid for g in own for xid in g.get("xids") or ()})
        if xids:
            lines.append(f"GPU {index} reported XID {', '.join(map(str, xids))}")
    return lines


def corrected(campaign: Campaign) -> list[str]:
    """Memory errors that GPUs corrected while they worked: results are right, but the memory should be watched."""
    lines = []
    for index in sorted({g["index"] for s in campaign.samples for g in s["gpus"]}):
        counts = [g["ecc_corrected"] for s in campaign.samples for g in s["gpus"]
                  if g["index"] == index and g.get("ecc_corrected") is not None]
        if counts and max(counts) > counts[0]:
            lines.append(f"MEMORY: GPU {index} corrected {max(counts) - counts[0]} errors")
    return lines


def doubts(campaign: Campaign) -> list[str]:
    """Reasons to doubt the rates: other work, more processes than cores, repeats that differ."""
    cores = int(campaign.machine["cores"])
    lines = [f"NOT QUIET: other work kept {busy:.1f} cores busy during {name}"
             for name, busy in others(campaign).items() if busy > OTHERS]
    lines += [f"NOT QUIET: {n} processes did {gain:.2f} times the work of one alone in {' '.join(key)}, which is "
              "impossible: the one alone was "
              "disturbed" for (key, n), gain in gains(campaign.rows).items() if gain > ALIKE * n]
    lines += [f"NOT QUIET: repeats of {' '.join(r.key)} with {r.procs} processes differ by a factor of "
              f"{r.high / r.low:.2f}" for r in campaign.rows if r.low and r.high and r.high > ALIKE * r.low]
    crowded = sorted({r.procs for r in campaign.rows if r.procs > cores and r.rate})
    if crowded:
        lines.append(f"SHARED CORES: {', '.join(map(str, crowded))} processes shared {cores} cores")
    return lines


def others(campaign: Campaign) -> dict[str, float]:
    """Cores kept busy by processes outside the campaign, for each sampled set."""
    found = {}
    for name in dict.fromkeys(s["set"] for s in campaign.samples):
        own = [s for s in campaign.samples if s["set"] == name]
        known = dict(cores_busy(own))
        each = [((after["machine"]["cpu"] - before["machine"]["cpu"]) / (after["t"] - before["t"]) - known[after["t"]],
                 after["t"] - before["t"]) for before, after in pairwise(own)
                if after["t"] in known and 0 < after["t"] - before["t"] < PAUSE]
        if each:
            found[name] = sum(busy * seconds for busy, seconds in each) / sum(seconds for _, seconds in each)
    return found


def verdict(campaign: Campaign) -> str:
    """The last sentence: fit or not, shared well or not, and what to do."""
    errors = sum(r.errors for r in campaign.rows)
    if errors:
        return (f"Verdict: not fit: {errors} results are WRONG: take this machine out of use, and have its processor, "
                "memory and GPU checked.")
    said = gpu_errors(campaign)
    if said:
        return (f"Verdict: not fit: {'; '.join(said)}: take the GPU out of use, and look up its errors in the system's "
                "log and in NVIDIA's list of XIDs.")
    lost = [r for r in campaign.rows if r.status not in FINE]
    if lost:
        return (f"Verdict: not judged: {len(lost)} sets did not end well: see the reasons below, and run them again "
                "(--retry).")
    said = doubts(campaign)
    if said:
        return ("Verdict: results are right, but rates are not fit for conclusions: run it again (in a new folder) "
                "with nothing else on the machine, and with no more processes than cores.")
    shared = {key: gain for key, gain in gains(campaign.rows).items() if key[1] > 1}
    if not shared:
        return "Verdict: fit: all results are right; sharing was not tested: give several numbers of --procs."
    (key, n), gain = min(shared.items(), key=lambda item: item[1] / item[0][1])
    what = f"{n} processes do {gain:.2f} times the work of one in {' '.join(key)}"
    if gain >= WELL * n:
        return f"Verdict: fit, and shared well: at least {what}."
    advice = ("more processes gain little" if gain >= BETTER else
              "give each process its own machine (GPU)")
    return f"Verdict: fit, but not shared well: {what}: {advice}."
