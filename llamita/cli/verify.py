"""`llamita verify A B`: are two checkpoints the same model?"""

from __future__ import annotations

import dataclasses
import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import llamita
from llamita.cli.options import MODEL_HELP, PRESET_HELP, TOKENIZER_HELP, JsonOption
from llamita.errors import CheckFailed, ConfigError

if TYPE_CHECKING:
    from llamita.shipping.verify import Comparison


def command(
    a: Annotated[Path, typer.Argument(metavar="A", help=MODEL_HELP)],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one to hold against it.")],
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="The largest allowed gap of two logits; 2e-5 if left out. Rounding the weights "
            "to bfloat16 makes about 0.05, to 8 bits 0.2."
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Set this config field of both."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", "--preset-a", metavar="NAME", help=f"Of A. {PRESET_HELP}"),
    ] = None,
    preset_b: Annotated[str | None, typer.Option(metavar="NAME", help="The same, of B.")] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer", "--tokenizer-a", metavar="PATH", help=f"Of A. {TOKENIZER_HELP}"
        ),
    ] = None,
    tokenizer_b: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The same, of B.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare logits, greedy tokens, tokenization and chats; exit 1 where they differ."""
    from llamita.shipping.verify import DEFAULT_TOLERANCE, compare

    tolerance = DEFAULT_TOLERANCE if tolerance is None else tolerance
    if not tolerance >= 0:
        raise ConfigError(f"--tolerance is {tolerance}; it must be 0 or more.")
    left, right = (
        llamita.load(
            path,
            device="cpu",
            dtype="float32",
            override=override,
            preset=named_preset,
            tokenizer=named_tokenizer,
        )
        for path, named_preset, named_tokenizer in (
            (a, preset, tokenizer),
            (b, preset_b, tokenizer_b),
        )
    )
    comparison = compare(left, right, tolerance)
    print(json_module.dumps(dataclasses.asdict(comparison)) if json else _table(comparison))
    if not comparison.same:
        raise CheckFailed(f"{a} and {b} are not the same model.")


def _table(comparison: Comparison) -> str:
    gap, scale = comparison.max_logit_gap, comparison.logit_scale
    logits = "not comparable"
    if gap is not None:
        logits = f"{gap:.3g} over {comparison.positions} positions (scale {scale:.3g})"
    rows = [
        ("largest logit gap", logits),
        ("greedy tokens", _verdict(comparison.greedy_equal, "not comparable")),
        ("token ids", _verdict(comparison.token_ids_equal, "no tokenizer in either")),
        ("chats", _verdict(comparison.chat_equal, "not comparable")),
        ("same model", "yes" if comparison.same else "no"),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += [f"differs: {sentence}" for sentence in comparison.differences]
    lines += [f"note: {sentence}" for sentence in comparison.notes]
    return "\n".join(lines)


def _verdict(equal: bool | None, otherwise: str) -> str:
    return otherwise if equal is None else "equal" if equal else "different"
