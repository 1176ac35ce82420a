"""`llamita inspect PATH`: what is in this checkpoint, data folder or run."""

from __future__ import annotations

import dataclasses
import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from llamita.config import ModelConfig
from llamita.data.manifest import Manifest
from llamita.formats.config_read import parse_overrides
from llamita.formats.detect import LATEST, RECIPE, is_data, is_run, load_checkpoint
from llamita.tokenizer.files import has_tokenizer
from llamita.tokenizer.load import load_tokenizer
from llamita.training.metrics import METRICS_NAME, read_metrics
from llamita.training.recipe import load_recipe

_SPECIALS_SHOWN = 8


def command(
    path: Annotated[Path, typer.Argument(help="A model directory, a RUN or a DATA folder.")],
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting the checkpoint lacks or has wrong."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what PATH holds: its format, config, parameters and tokenizer."""
    found = describe(path, parse_overrides(override or []))
    print(json_module.dumps(found, ensure_ascii=False) if json else _table(found))


def describe(path: Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """What `path` holds. `config`, `parameters` and `tokenizer` are None where it has none.

    Besides: a model's `dtype` and `bytes`, a RUN's `run`, a DATA folder's `data`.

    Raises:
        LlamitaError: it is nothing that llamita knows, or damaged.
    """
    if is_data(path):
        return {
            "format": "data",
            "config": None,
            "parameters": None,
            "tokenizer": _describe_tokenizer(path),
            "data": Manifest.load(path).model_dump(mode="json"),
        }
    state = _describe_run(path) if is_run(path) else None
    if state is not None and not (path / LATEST).exists():
        return {
            "format": "run",
            "config": None,
            "parameters": None,
            "tokenizer": None,
            "run": state,
        }
    checkpoint = load_checkpoint(path, overrides)
    tensors = checkpoint.state_dict.values()
    found = {
        "format": checkpoint.format if state is None else "run",
        "config": _describe_config(checkpoint.config),
        "parameters": sum(tensor.numel() for tensor in tensors),
        "dtype": str(checkpoint.dtype).removeprefix("torch."),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "tokenizer": _describe_tokenizer(checkpoint.directory),
    }
    return found if state is None else {**found, "run": state}


def _describe_config(config: ModelConfig) -> dict[str, Any]:
    return {
        spec.name: getattr(config, spec.name) for spec in dataclasses.fields(config) if spec.init
    }


def _describe_tokenizer(directory: Path) -> dict[str, Any] | None:
    if not has_tokenizer(directory):
        return None
    tokenizer = load_tokenizer(directory)
    return {
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "special_tokens": tokenizer.special_tokens,
        "fingerprint": tokenizer.fingerprint,
    }


def _describe_run(run: Path) -> dict[str, Any]:
    lines = read_metrics(run / METRICS_NAME)
    losses = [
        line["validation_bits_per_byte"] for line in lines if "validation_bits_per_byte" in line
    ]
    return {
        "step": lines[-1]["step"] if lines else 0,
        "steps": load_recipe(run / RECIPE).length.steps,
        "bits_per_byte": losses[-1] if losses else None,
        "best_bits_per_byte": min(losses, default=None),
    }


def _table(found: dict[str, Any]) -> str:
    rows: list[tuple[str, object]] = [("format", found["format"])]
    if "run" in found:
        run = found["run"]
        rows.append(("trained", f"{run['step']} of {run['steps']} steps"))
        if run["bits_per_byte"] is not None:
            rows.append(
                (
                    "bits per byte",
                    f"{run['bits_per_byte']:.3f}, best {run['best_bits_per_byte']:.3f}",
                )
            )
    if found["parameters"] is not None:
        size = f"{found['parameters']:,} in {found['dtype']}, {found['bytes'] / 1e6:,.1f} MB"
        rows.append(("parameters", size))
    rows += (found["config"] or {}).items()
    if "data" in found:
        rows += _data_rows(found["data"])
    rows.append(("tokenizer", _tokenizer_line(found["tokenizer"])))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {'-' if value is None else value}" for name, value in rows)


def _data_rows(data: dict[str, Any]) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for split in ("train", "val"):
        counts = data[split]
        rows.append(
            (
                split,
                f"{counts['documents']:,} documents, {counts['bytes']:,} bytes, "
                f"{counts['tokens']:,} tokens",
            )
        )
    rows.append(("bytes per token", f"{data['bytes_per_token']:.2f}"))
    rows.append(("sources", len(data["sources"])))
    rows.append(("shards", f"{len(data['shards'])} of {data['dtype']}"))
    return rows


def _tokenizer_line(tokenizer: dict[str, Any] | None) -> str:
    if tokenizer is None:
        return "none"
    names = list(tokenizer["special_tokens"])
    more = f" and {len(names) - _SPECIALS_SHOWN} more" if len(names) > _SPECIALS_SHOWN else ""
    specials = f"{', '.join(names[:_SPECIALS_SHOWN])}{more}" or "none"
    return f"{tokenizer['kind']}, {tokenizer['vocab_size']:,} tokens, special: {specials}"
