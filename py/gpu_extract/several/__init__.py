"""Several passes over an image: the work on each bundle, and the exchange between ranks."""
