"""Many frames on many ranks: groups of ranks, each with a reader and a writer that work while the group computes."""
