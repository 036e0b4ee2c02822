"""A fibre's Schur complement S in a narrow band: neighbours eliminated, what is cut off, sums of poles."""
