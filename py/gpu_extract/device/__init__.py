"""A rank's bundles on a device: pieces, memory, streams, and the work that returns to the CPU."""
