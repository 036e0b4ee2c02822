"""The stressor: loads of known size for GPUs and CPUs, campaigns of loads, and verdicts on a machine."""
