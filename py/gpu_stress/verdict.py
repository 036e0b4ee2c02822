"""Whether a campaign can be trusted, and in one sentence what it says of the machine."""
from itertools import pairwise

from gpu_stress.rows import PAUSE, Campaign, cores_busy, gains

OTHERS = 0.25         # cores that other work may keep busy, in the mean over a set
ALIKE = 1.1           # the best repeat over the worst, and sharing over the ideal, beyond which a machine was not quiet
WELL, BETTER = 0.8, 1.1       # of the ideal: shared well; of one process alone: several are worth it


def doubts(campaign: Campaign) -> list[str]:
    """Why rates may not be what they seem: other work, more processes than cores, repeats that differ."""
    cores = int(campaign.machine["cores"])
    lines = [f"NOT QUIET: other work kept {busy:.1f} cores busy during {name}"
             for name, busy in others(campaign).items() if busy > OTHERS]
    lines += [f"NOT QUIET: {n} processes did {gain:.2f} times the work of one alone in {' '.join(key)}, which cannot "
              "be: that one was disturbed" for (key, n), gain in gains(campaign.rows).items() if gain > ALIKE * n]
    lines += [f"NOT QUIET: repeats of {' '.join(r.key)} with {r.procs} processes differ by a factor of "
              f"{r.high / r.low:.2f}" for r in campaign.rows if r.low and r.high and r.high > ALIKE * r.low]
    crowded = sorted({r.procs for r in campaign.rows if r.procs > cores and r.rate})
    if crowded:
        lines.append(f"SHARED CORES: {', '.join(map(str, crowded))} processes on {cores} cores: they took turns")
    return lines


def others(campaign: Campaign) -> dict[str, float]:
    """Cores that processes which are not of the campaign kept busy during each set that was sampled."""
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
    lost = [r for r in campaign.rows if r.status not in ("ok", "unsupported", "out of memory")]
    if lost:
        return f"Verdict: not judged: {len(lost)} sets did not end well: see why below, and run them again (--retry)."
    said = doubts(campaign)
    if said:
        return ("Verdict: results are right, rates are not fit for conclusions: run it again (in a new folder) with "
                "nothing else on the machine, and with no more processes than cores.")
    shared = {key: gain for key, gain in gains(campaign.rows).items() if key[1] > 1}
    if not shared:
        return "Verdict: fit: all results are right; sharing was not tried: give several numbers of --procs."
    (key, n), gain = min(shared.items(), key=lambda item: item[1] / item[0][1])
    what = f"{n} processes do {gain:.2f} times the work of one in {' '.join(key)}"
    if gain >= WELL * n:
        return f"Verdict: fit, and shared well: at the least {what}."
    advice = ("more processes than that gain little" if gain >= BETTER else
              "give each process a machine (a GPU) of its own")
    return f"Verdict: fit, but not shared well: {what}: {advice}."
