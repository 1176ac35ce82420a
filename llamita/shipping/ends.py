"""Which tokens end a text, in layouts whose config says less than the checkpoint does."""

from __future__ import annotations

import contextlib

from llamita.errors import LlamitaError
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.foreign_config import refuse_for
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.ends import end_ids


def unsaid_ends(checkpoint: Checkpoint, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """The checkpoint's ends that its tokenizer and its chat template do not tell by themselves."""
    told: set[int | None] = set()
    if tokenizer is not None:
        told.add(tokenizer.eos_token_id)
        with contextlib.suppress(LlamitaError):
            told.update(end_ids(tokenizer))
    return tuple(end for end in checkpoint.end_ids if end not in told)


def with_one_end(checkpoint: Checkpoint, tokenizer: Tokenizer | None, layout: str) -> Checkpoint:
    """The checkpoint for a config that holds one end: the one that nothing else tells.

    Raises:
        ConfigError: there are several of that kind.
    """
    ends, unsaid = checkpoint.end_ids, unsaid_ends(checkpoint, tokenizer)
    if len(unsaid) > 1:
        refuse_for(layout, "eos_token_id", unsaid, "it holds one id")
    own = None if tokenizer is None else tokenizer.eos_token_id
    usual = (own,) if own in ends else ends[:1]
    return checkpoint.with_end_ids([end for end in unsaid or usual if end is not None])
