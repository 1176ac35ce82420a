"""`llamita inspect PATH`: what is in this checkpoint, data folder or run."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from llamita.cli.options import (
    MODEL_HELP,
    JsonOption,
    OverrideOption,
    PresetOption,
    TokenizerOption,
)

_SPECIALS_SHOWN = 8


def command(
    path: Annotated[Path, typer.Argument(help=f"{MODEL_HELP} Or DATA.")],
    override: OverrideOption = None,
    preset: PresetOption = None,
    tokenizer: TokenizerOption = None,
    json: JsonOption = False,
) -> None:
    """Say what PATH holds: its format, config, parameters and tokenizer."""
    from llamita.formats.config_read import parse_overrides
    from llamita.shipping.describe import describe

    found = describe(path, parse_overrides(override or []), preset=preset, tokenizer=tokenizer)
    print(json_module.dumps(found, ensure_ascii=False) if json else _table(found))


def _table(found: dict[str, Any]) -> str:
    rows: list[tuple[str, object]] = [("format", found["format"])]
    if "run" in found:
        run = found["run"]
        rows.append(("trained", f"{run['step']} of {run['steps']} steps"))
        if run["validation_bits_per_byte"] is not None:
            rows.append(
                (
                    "validation",
                    f"{run['validation_bits_per_byte']:.3f} bits per byte, "
                    f"best {run['best_validation_bits_per_byte']:.3f}",
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
        line = (
            f"{counts['documents']:,} documents, {counts['bytes']:,} bytes, "
            f"{counts['tokens']:,} tokens"
        )
        if counts["learned_tokens"] is not None:
            line += f", {counts['learned_tokens']:,} of them to be learned (mask)"
        rows.append((split, line))
    rows.append(("bytes per token", f"{data['bytes_per_token']:.2f}"))
    if data["kind"] == "token bins":
        names = [shard[key] for shard in data["shards"] for key in ("file", "mask") if shard[key]]
        rows.append(("files", ", ".join(names)))
    else:
        rows.append(("sources", len(data["sources"])))
        rows.append(("shards", f"{len(data['shards'])} of {data['dtype']}"))
    rows.append(("fingerprint", data["fingerprint"]))
    return rows


def _tokenizer_line(tokenizer: dict[str, Any] | None) -> str:
    if tokenizer is None:
        return "none"
    names = list(tokenizer["special_tokens"])
    more = f" and {len(names) - _SPECIALS_SHOWN} more" if len(names) > _SPECIALS_SHOWN else ""
    specials = f"{', '.join(names[:_SPECIALS_SHOWN])}{more}" or "none"
    return f"{tokenizer['kind']}, {tokenizer['vocab_size']:,} tokens, special: {specials}"
