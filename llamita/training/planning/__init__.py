"""What will come of a run before it is made: which model fits a text, a machine and a time.

Measured by short runs and foretold by a scaling law; for many GPUs, worked out on paper.
"""
