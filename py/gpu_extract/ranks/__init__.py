"""Ranks: one process or many behind the same verbs, how values travel between them, and how all of them end."""
