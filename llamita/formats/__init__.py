"""One file for each on-disk format, and `detect.py` that tells them apart.

The only package that knows foreign names.
"""
