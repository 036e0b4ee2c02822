"""A fibre's Schur complement S in a narrow band: elimination of neighbours, the truncated part, sums of poles."""
