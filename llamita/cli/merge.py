"""`llamita merge ADAPTER -o DIR`: an adapter in PEFT's format and its base as one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from llamita.cli.options import DtypeOption, JsonOption, OverrideOption
from llamita.errors import CheckpointError


def command(
    adapter: Annotated[
        Path,
        typer.Argument(
            metavar="ADAPTER", help="A folder with adapter_config.json, as finetune --lora makes."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The model directory to make.")
    ],
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="The model it is for; left out, the one that it names itself."
        ),
    ] = None,
    dtype: DtypeOption = None,
    override: OverrideOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the model that a low-rank adapter makes of its base, for whoever reads models alone.

    Sums are computed in float32 and stored as the base is, unless --dtype says otherwise.
    """
    from llamita.formats.config_read import parse_overrides
    from llamita.formats.detect import load_checkpoint
    from llamita.formats.huggingface import save_weights
    from llamita.formats.peft import base_path, is_adapter
    from llamita.formats.peft_config import AdapterConfig
    from llamita.model.placement import parse_dtype
    from llamita.tokenizer.ends import end_ids
    from llamita.tokenizer.load import checkpoint_tokenizer

    if not is_adapter(adapter):
        raise CheckpointError(
            f"{adapter} is no adapter: it has no adapter_config.json.",
            hint="Whole models are converted: llamita convert MODEL DIR --to hf",
        )
    overrides = parse_overrides(override) if override else None
    beneath = base_path(adapter, AdapterConfig.read(adapter)) if base is None else base
    stored = load_checkpoint(beneath, overrides).dtype
    merged = load_checkpoint(adapter, overrides, base=beneath)
    chosen = stored if dtype is None else parse_dtype(dtype)
    tokenizer = checkpoint_tokenizer(merged)
    ends = [*merged.end_ids, *(() if tokenizer is None else end_ids(tokenizer))]
    save_weights(
        merged.with_end_ids(tuple(dict.fromkeys(ends))).config,
        merged.tensors,
        out,
        tokenizer,
        chosen,
        {key: value for key, value in merged.generation.items() if key != "eos_token_id"},
    )
    name = str(chosen).removeprefix("torch.")
    if as_json:
        print(json.dumps({"model": str(out), "base": str(beneath), "dtype": name}))
    else:
        print(f"{adapter} on {beneath}, in {name}: {out}")
