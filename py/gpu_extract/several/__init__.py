"""Several passes over an image: what is done to each bundle in them, and what ranks tell each other in between."""
