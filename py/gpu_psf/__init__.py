"""The PSF and the traces of a fibre spectrograph, fitted to exposures of arc lamps."""
