"""What can be told of models before the first is loaded: measuring may take hours, and a second
model that cannot be measured would take the figures of the first along."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llamita.cli.eval_wanted import Wanted

if TYPE_CHECKING:
    from llamita.inference.lm import LM


def check_models(
    paths: Sequence[str],
    wanted: Wanted,
    *,
    override: Iterable[str] | None,
    preset: str | None,
    tokenizer: str | Path | None,
) -> None:
    """Read each model's header and tokenizer, and try what is wanted of them but for the weights.

    Raises:
        LlamitaError: a model is none, has no tokenizer, cannot chat, has no room for an answer, ….
    """
    if wanted.tasks:
        from llamita.evaluation.harness import check_tasks

        check_tasks(wanted.tasks, wanted.tasks_path)
    for path in paths:
        _check(_without_weights(path, override, preset, tokenizer), wanted)


def _without_weights(
    path: str,
    override: Iterable[str] | None,
    preset: str | None,
    tokenizer: str | Path | None,
) -> LM:
    import torch

    from llamita.formats.config_read import parse_overrides
    from llamita.formats.detect import load_checkpoint
    from llamita.inference.lm import LM
    from llamita.model.transformer import Transformer
    from llamita.tokenizer.load import checkpoint_tokenizer

    checkpoint = load_checkpoint(
        Path(path),
        parse_overrides(override or []),
        preset=preset,
        tokenizer=None if tokenizer is None else Path(tokenizer),
    )
    with torch.device("meta"):
        model = Transformer(checkpoint.config)
    return LM(model, checkpoint_tokenizer(checkpoint), checkpoint.generation)


def _check(lm: LM, wanted: Wanted) -> None:
    from llamita.cli.eval_measures import tokenizer_of
    from llamita.evaluation.bits_per_byte import check_text_model
    from llamita.evaluation.multiple_choice import check_questions

    if wanted.files:
        check_text_model(tokenizer_of(lm), lm.config, wanted.context_length)
    if wanted.tasks:
        tokenizer_of(lm)
    chat = lm.chat_format if wanted.chat else None
    if wanted.questions:
        check_questions(tokenizer_of(lm), lm.config, wanted.questions, wanted.prompt, chat)
    tried = set()
    for case in wanted.tool_cases:
        # What a template takes depends on who speaks when.
        kind = (bool(case.tools), *(message["role"] for message in case.messages))
        if kind not in tried:
            tried.add(kind)
            lm.chat_prompt(case.messages, case.tools)
