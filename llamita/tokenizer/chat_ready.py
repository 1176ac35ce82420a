"""A tokenizer made ready for chats: with a chat template, and the control tokens that it writes."""

from __future__ import annotations

import re

from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_sandbox import template_literals
from llamita.tokenizer.chat_templates import BUILT_IN, DEFAULT_FORMAT

_LOOKS_LIKE_CONTROL = re.compile(r"<\|[^|<>\s\0]+\|>")


def ready_for_chats(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with what it lacks for chats; itself, where it lacks nothing.

    Without a chat template it gets that of `DEFAULT_FORMAT`, and its control tokens. A template of
    its own stays. Where that shows no control token that ends a turn, as the tokenizer has none of
    those that it writes, the tokenizer gets them: else nothing would tell the turns from text.

    Raises:
        TokenizerError: the template is damaged, or the tokenizer cannot be given a token.
    """
    if tokenizer.chat_template is None:
        chosen = BUILT_IN[DEFAULT_FORMAT]
        able = tokenizer.with_control_tokens([*chosen.control_tokens, *chosen.tool_tokens])
        return able.with_chat_template(chosen.template)
    own = ChatFormat.of(tokenizer)
    if own.shows_turn_ends:
        return tokenizer
    literals = "\0".join(template_literals(own.template))
    return tokenizer.with_control_tokens(_LOOKS_LIKE_CONTROL.findall(literals))
