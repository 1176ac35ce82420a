"""From settings to requests: everything that can be refused is refused before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llamita.config import ModelConfig
from llamita.errors import GenerationError, TokenizerError
from llamita.formats.end_ids import end_ids_of
from llamita.inference.constraint_tools import ToolConstraint
from llamita.inference.constraints import compile_constraint
from llamita.inference.params import SamplingParams
from llamita.inference.prompts import check_token_ids
from llamita.inference.request import Request
from llamita.inference.tool_rules import ToolRules
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.ends import end_ids


def build_requests(
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    tokenizer: Tokenizer | None,
    config: ModelConfig,
    own_stop_ids: Collection[int],
    rules: Sequence[ToolRules | None] | None = None,
) -> list[Request]:
    """One request for each prompt (token ids), numbered in order.

    own_stop_ids: the model's, where `params` name none. rules: which calls each answer may make,
    where that is constrained.

    Raises:
        GenerationError: a setting that this model cannot serve, by name and value.
    """
    if params.stop and tokenizer is None:
        raise GenerationError(
            f"stop is {params.stop!r}, but this model has no tokenizer to find text with.",
            hint="Use stop_token_ids.",
        )
    if params.overflow == "drop-oldest-turn":
        raise GenerationError(
            "overflow is 'drop-oldest-turn', but a prompt that is no chat has no turns.",
            hint="Use `chat`; or overflow='slide', which drops the oldest tokens.",
        )
    size = config.vocab_size
    stop_token_ids = own_stop_ids if params.stop_token_ids is None else params.stop_token_ids
    check_token_ids(stop_token_ids, size, "stop_token_ids")
    drawn = size if tokenizer is None else min(size, tokenizer.vocab_size)  # the rest is padding
    check_token_ids(params.banned_token_ids, drawn, "banned_token_ids")
    check_token_ids((token_id for token_id, _ in params.logit_bias), drawn, "logit_bias")
    stops = frozenset(stop_token_ids)
    compile_constraint(params, tokenizer, stops)  # kept, so the engine need not do it again
    wanted = [None] * len(prompts) if rules is None else rules
    return [
        Request(prompt, params, stops, row, _calls(own, params, tokenizer, stops))
        for row, (prompt, own) in enumerate(zip(prompts, wanted, strict=True))
    ]


def _calls(
    rules: ToolRules | None,
    params: SamplingParams,
    tokenizer: Tokenizer | None,
    stops: frozenset[int],
) -> ToolConstraint | None:
    if rules is None or tokenizer is None:
        return None
    if params.constraint is not None:
        raise GenerationError(
            f"{params.constraint[0]} is given, and tools whose calls are constrained.",
            hint="Leave one out; or tool_choice='none', or constrain_tools=False.",
        )
    if params.stop and rules.choice == "required":
        raise GenerationError(
            f"stop is {params.stop!r}: it could cut the call that tool_choice asks for.",
            hint="Leave out one of them.",
        )
    return ToolConstraint(rules, tokenizer, stops)


def model_stop_ids(
    config: ModelConfig, generation_config: Mapping[str, Any], tokenizer: Tokenizer | None
) -> tuple[int, ...]:
    """Every id that the checkpoint calls an end, and those that end a turn of its chats."""
    ids = {*end_ids_of(config, generation_config)}
    if tokenizer is not None:
        ids.update(token_id for token_id in _ends_of(tokenizer) if token_id < config.vocab_size)
    return tuple(sorted(ids))


def _ends_of(tokenizer: Tokenizer) -> Collection[int]:
    try:
        return end_ids(tokenizer)
    except TokenizerError as error:  # what is no chat needs no template
        warnings.warn(
            f"what ends a turn is not known, so texts end at EOS alone: {error.message}",
            stacklevel=3,
        )
        return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
