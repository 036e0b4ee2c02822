"""The traces of one exposure: small shifts against a given PSF, measured from the exposure's own light."""
