"""Where the traces lie in one exposure: small shifts against a given PSF, from the exposure's own light."""
