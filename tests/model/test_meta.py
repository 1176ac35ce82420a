"""Laying out a model without weights is cheap: it happens whenever a checkpoint is read."""

from __future__ import annotations

import subprocess
import sys


def test_a_model_on_the_meta_device_loads_no_compiler() -> None:
    code = """
import sys, torch
from llamita.config import preset
from llamita.model.transformer import Transformer
with torch.device("meta"):
    Transformer(preset("tiny", 256))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
