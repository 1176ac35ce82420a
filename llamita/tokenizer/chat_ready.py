"""A tokenizer made ready for chats: with a chat template, and the control tokens that it writes."""

from __future__ import annotations

import re

from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_sandbox import template_literals
from llamita.tokenizer.chat_templates import DEFAULT_FORMAT, built_in_format, require_format

_LOOKS_LIKE_CONTROL = re.compile(r"<\|[^|<>\s\0]+\|>")


def ready_for_chats(tokenizer: Tokenizer, chat_format: str | None = None) -> Tokenizer:
    """The tokenizer with what it lacks for chats; itself, where it lacks nothing.

    Without a chat template it gets that of `chat_format` (None: `DEFAULT_FORMAT`), and its control
    tokens. A template of its own stays, and must be that of a `chat_format` that is named. Where it
    shows no control token that ends a turn, as the tokenizer has none of those that it writes, the
    tokenizer gets them: else nothing would tell the turns from text.

    Raises:
        TokenizerError: the template is damaged or another than that of `chat_format`, or the
            tokenizer cannot be given a token.
    """
    if tokenizer.chat_template is None:
        chosen = built_in_format(chat_format or DEFAULT_FORMAT)
        able = tokenizer.with_control_tokens([*chosen.control_tokens, *chosen.tool_tokens])
        return able.with_chat_template(chosen.template)
    if chat_format is not None:
        require_format(chat_format, tokenizer.chat_template)
    own = ChatFormat.of(tokenizer)
    if own.shows_turn_ends:
        return tokenizer
    literals = "\0".join(template_literals(own.template))
    return tokenizer.with_control_tokens(_LOOKS_LIKE_CONTROL.findall(literals))


def never_trained(before: Tokenizer, able: Tokenizer) -> tuple[int, ...]:
    """The ids in `able` of control tokens that its chat templates write and that a model which was
    trained with `before` never saw.

    `before` lacks them, or has them as ordinary tokens. Where it has no chat template, so were all
    others: a vocabulary is made with them, but texts hold none. What begins or ends texts was seen.
    """
    written = "\0".join(
        text for template in able.chat_templates.values() for text in template_literals(template)
    )
    return tuple(
        sorted(
            token_id
            for name, token_id in able.special_tokens.items()
            if name in written
            and token_id not in (able.bos_token_id, able.eos_token_id)
            and not _was_seen(name, before)
        )
    )


def _was_seen(name: str, before: Tokenizer) -> bool:
    token_id = before.special_tokens.get(name)
    if token_id is None:
        return False
    is_role = token_id in (before.bos_token_id, before.eos_token_id)
    return is_role or before.chat_template is not None
