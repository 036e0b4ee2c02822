"""A rank's bundles on a device: pieces, memory, streams, and what goes back to the CPU."""
