"""A starting PSF: traces from a flat, wavelengths from a list of lines, Gaussian spots of measured widths."""
