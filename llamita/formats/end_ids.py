"""Which tokens end a text, as a checkpoint says; free of PyTorch, for those who generate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llamita.config import ModelConfig
from llamita.errors import CheckpointError


def end_ids_of(config: ModelConfig, generation: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that end a text by the config, and those that `generation_config.json` adds.

    Raises:
        CheckpointError: that names something else than a token.
    """
    named = generation.get("eos_token_id")
    more = [] if named is None else named if isinstance(named, list | tuple) else [named]
    if not all(type(token_id) is int and 0 <= token_id < config.vocab_size for token_id in more):
        raise CheckpointError(
            f"generation_config.json has eos_token_id = {named!r}; ids go from 0 to "
            f"vocab_size - 1 ({config.vocab_size - 1}).",
            hint="Say the right ones with --override eos_token_id='[…]'.",
        )
    return tuple(dict.fromkeys([*config.eos_token_ids, *more]))
