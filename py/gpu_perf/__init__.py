"""Performance tools: reports on runs, scaling sweeps, the history of run times, imported profiles."""
