"""The stressor: loads of known size for GPUs and CPUs, campaigns of them, and what they say about a machine."""
