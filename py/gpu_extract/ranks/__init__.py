"""Ranks: one process or many behind the same verbs, the transport of values, and the end of all ranks."""
