"""Claim: converting a 7B-shaped model, verification included, takes under 3 GB of memory.

    python benchmarks/convert_memory.py [--shape 1b|7b] [--no-verify] [--directory DIR]

Makes a model of that shape as sparse bfloat16 shards (holes in files: all numbers are zero, and
nothing is read from the disk but the pages that hold them), converts it hf -> gguf, hf -> meta and
meta -> hf with the command line, and samples the anonymous memory (RssAnon: what is no page of a
file) of that process and its children every 20 ms. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from llamita.config import ModelConfig
from llamita.formats.config_write import config_to_json

SHAPES = {
    "1b": ModelConfig(128256, 2048, 8192, 16, 32, num_key_value_heads=8, rope_theta=500000.0),
    "7b": ModelConfig(
        32000, 4096, 11008, 32, 32, max_position_embeddings=4096, tie_word_embeddings=False
    ),
}
CONVERSIONS = (("hf", "gguf"), ("hf", "meta"), ("meta", "hf"))
SHARD_BYTES = 2_000_000_000
SAMPLE_SECONDS = 0.02


def tensor_shapes(config: ModelConfig) -> dict[str, list[int]]:
    import torch

    from llamita.model.transformer import Transformer

    with torch.device("meta"):
        state = Transformer(config).state_dict()
    if config.tie_word_embeddings:
        del state["lm_head.weight"]
    return {name: list(tensor.shape) for name, tensor in state.items()}


def make_source(config: ModelConfig, shapes: dict[str, list[int]], directory: Path) -> None:
    """A HuggingFace directory of bfloat16 zeros that takes no room on the disk."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config_to_json(config, dtype="bfloat16")))
    shards: list[dict[str, list[int]]] = [{}]
    room = SHARD_BYTES
    for name, shape in shapes.items():
        size = 2 * count(shape)
        if size > room and shards[-1]:
            shards.append({})
            room = SHARD_BYTES
        shards[-1][name] = shape
        room -= size
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        weight_map.update(dict.fromkeys(shard, file_name))
        header, end = {}, 0
        for name, shape in shard.items():
            start, end = end, end + 2 * count(shape)
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (directory / file_name).open("wb") as handle:
            handle.write(len(text).to_bytes(8, "little") + text)
            handle.truncate(8 + len(text) + end)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def count(shape: list[int]) -> int:
    numbers = 1
    for length in shape:
        numbers *= length
    return numbers


def convert(source: Path, destination: Path, target: str, verify: bool) -> dict[str, float]:
    """Run the command; its peak of anonymous memory in MB, and its seconds."""
    command = [sys.executable, "-m", "llamita", "convert", str(source), str(destination)]
    command += ["--to", target, *([] if verify else ["--no-verify"])]
    start, peak = time.monotonic(), 0
    process = subprocess.Popen(command, stdout=sys.stderr)
    while process.poll() is None:
        peak = max(peak, sum(map(anonymous_bytes, family(process.pid))))
        time.sleep(SAMPLE_SECONDS)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {"peak_anon_mb": round(peak / 1e6, 1), "seconds": round(time.monotonic() - start, 1)}


def family(process_id: int) -> list[int]:
    """The process and all that it started, which live."""
    found = [process_id]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        found += map(int, children)
    return found


def anonymous_bytes(process_id: int) -> int:
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--directory", type=Path, help="where the files go (up to 3 models)")
    arguments = parser.parse_args()
    config = SHAPES[arguments.shape]
    shapes = tensor_shapes(config)
    parameters = sum(map(count, shapes.values()))
    largest = max(shapes, key=lambda name: count(shapes[name]))
    layer = sum(count(s) for name, s in shapes.items() if name.startswith("model.layers.0."))
    print(f"{parameters:,} parameters, {2 * parameters / 1e9:.2f} GB as bfloat16")
    print(f"largest tensor: {largest} {shapes[largest]}, {2 * count(shapes[largest]) / 1e6:.0f} MB")
    print(
        f"in float32, when logits are compared: {4 * count(shapes[largest]) / 1e6:.0f} MB; "
        f"one layer {4 * layer / 1e6:.0f} MB"
    )
    work = Path(tempfile.mkdtemp(prefix="convert-memory-", dir=arguments.directory))
    results = {}
    try:
        make_source(config, shapes, work / "hf")
        for source, target in CONVERSIONS:
            destination = work / (target if not (work / target).exists() else f"{target}-back")
            found = convert(work / source, destination, target, not arguments.no_verify)
            results[f"{source}->{target}"] = found
            print(f"{source} -> {target}: {found['peak_anon_mb']:.0f} MB, {found['seconds']:.0f} s")
            if target != "meta":
                shutil.rmtree(destination)
    finally:
        shutil.rmtree(work)
    peak = max(found["peak_anon_mb"] for found in results.values())
    print(
        json.dumps(
            {
                "peak_anon_mb": peak,
                "shape": arguments.shape,
                "parameters": parameters,
                "verified": not arguments.no_verify,
                "under_3_gb": peak < 3000,
                "conversions": results,
            }
        )
    )


if __name__ == "__main__":
    main()
