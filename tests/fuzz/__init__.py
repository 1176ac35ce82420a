"""Thousands of damaged and hostile checkpoints, opened as a user would open them.

`bases.py` makes a sound file of each kind; `structured.py` and `raw.py` spoil a copy of one;
`worker.py` opens it in a process with little memory and time; `harness.py` drives workers and
judges what they say. Everything follows from a case's number: `python -m tests.fuzz --case N`.
"""
