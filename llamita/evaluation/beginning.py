"""What has to be so that a model can read a text: a token to begin from, and a context."""

from __future__ import annotations

from llamita.config import ModelConfig
from llamita.errors import DataError, TokenizerError
from llamita.inference.prompts import start_token_id
from llamita.tokenizer.base import Tokenizer


def document_start(tokenizer: Tokenizer, config: ModelConfig, use: str) -> int:
    """The id that a document begins behind. `use`: what it is needed for, a sentence.

    Raises:
        TokenizerError: there is none.
    """
    start = start_token_id(tokenizer, config)
    if start is None:
        raise TokenizerError(
            "the tokenizer has no token that marks a document's beginning (no EOS, no BOS).",
            hint=use,
        )
    return start


def window_length(config: ModelConfig, wanted: int | None) -> int:
    """The tokens of a window: those wanted, or the model's context.

    Raises:
        DataError: the model's context is shorter.
    """
    longest = config.max_position_embeddings
    length = longest if wanted is None else wanted
    if not 1 <= length <= longest:
        raise DataError(
            f"context_length is {length}.",
            hint=f"It must be from 1 to the model's context, {longest}.",
        )
    return length
