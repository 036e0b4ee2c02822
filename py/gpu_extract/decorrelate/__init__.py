"""From x and icov to flux, ivar and resolution: C^-1 = Q Q with Q symmetric (B&S section 3.4), by one of two cores.

`banded` takes whole fibres, with `narrow`, `windows` and `wide` as the ways to a fibre's Schur complement; `dense` goes
patch by patch. `limits`, `poles` and `weak` belong to both.
"""
