"""The memory and disk that a run takes, worked out before it starts, and what there is of them.

A run that would not fit is refused here, with the nearest setting that fits.
"""
