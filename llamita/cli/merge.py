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
            metavar="ADAPTER",
            help="A folder with adapter_config.json, or the RUN of finetune --lora that has one.",
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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another model that lies at DIR.")
    ] = False,
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
    from llamita.training.checkpointing.saving import ADAPTER

    if not is_adapter(adapter) and is_adapter(adapter / ADAPTER):
        adapter = adapter / ADAPTER
    if not is_adapter(adapter):
        hint = "Whole models are converted: llamita convert MODEL DIR --to hf"
        beside = adapter.parent / ADAPTER
        if is_adapter(beside):
            hint = f"It is merged already, and can be used as it is. The adapter is {beside}."
        raise CheckpointError(f"{adapter} is no adapter: it has no adapter_config.json.", hint=hint)
    overrides = parse_overrides(override) if override else None
    beneath = base_path(adapter, AdapterConfig.read(adapter)) if base is None else base
    _check_free(out, overwrite, adapter, beneath)
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


def _check_free(out: Path, overwrite: bool, *read: Path) -> None:
    """Refuse a folder where something would be lost.

    Raises:
        CheckpointError: it is, holds or is part of what is `read` or of a run, or has something in
            it and may not be replaced.
    """
    from llamita.formats.detect import RECIPE

    there = out.resolve()
    for path in (one.resolve() for one in read):
        if there == path or there in path.parents or path in there.parents:
            raise CheckpointError(
                f"{out} is {path}, holds it or lies in it; merging reads that.",
                hint="Choose another folder with -o.",
            )
    for folder in (there, *there.parents):
        if (folder / RECIPE).is_file():
            raise CheckpointError(
                f"{out} belongs to the run {folder}, which has its own models.",
                hint="Choose another folder with -o.",
            )
    is_there = out.is_file() or (out.is_dir() and any(out.iterdir()))
    if is_there and not overwrite:
        raise CheckpointError(
            f"{out} exists.",
            hint="Choose another folder with -o, or pass --overwrite to replace the model there.",
        )
