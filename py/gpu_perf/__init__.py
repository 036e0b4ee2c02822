"""Assessment of performance: reports of runs, scaling sweeps, the history of commits, imported profiles."""
