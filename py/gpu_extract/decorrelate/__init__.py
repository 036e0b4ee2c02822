"""From x and icov to flux, ivar and resolution: C^-1 = Q Q with Q symmetric (B&S section 3.4), by one of two cores.

`banded` decorrelates whole fibres; `narrow`, `windows` and `wide` are its ways to a fibre's Schur complement. `dense`
works patch by patch. `limits`, `poles` and `weak` belong to both.
"""
