"""One file for each on-disk format, and `detect.py` that tells them apart.

The only package that knows foreign names.
"""

from llamita.formats.checkpoint import Checkpoint, build_model
from llamita.formats.config_read import parse_overrides
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory

__all__ = [
    "Checkpoint",
    "build_model",
    "load_checkpoint",
    "parse_overrides",
    "save_model_directory",
]
