"""The one definition of a chat format: how a conversation becomes text, ids and loss masks.

A chat format is a Jinja template, which travels with the model, and the tokenizer whose control
tokens it writes. Everything else is found from these two: what ends a turn, which tokens the
assistant says, how tool calls are written. Training, serving, tools and exporting all ask here, so
that what ends a turn in training is what stops generation.

    chat = ChatFormat.of(tokenizer)
    ids = chat.encode(messages, tools, add_generation_prompt=True)
    message = chat.parse(answer)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from llamita.errors import TokenizerError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_answers import answer_text, parse_answer, structural_names
from llamita.tokenizer.chat_encode import ChatEncoder, Piece, split_at_controls, with_one_bos
from llamita.tokenizer.chat_files import TOOL_USE, special_token_variables
from llamita.tokenizer.chat_messages import (
    check_messages,
    check_tools,
    in_form,
    join_blocks,
    lift_tool_calls,
    plain_data,
)
from llamita.tokenizer.chat_probe import content_form, turn_ends
from llamita.tokenizer.chat_sandbox import (
    compile_template,
    render_template,
    template_literals,
    template_variables,
)
from llamita.tokenizer.chat_shield import Shield, control_pattern
from llamita.tokenizer.chat_spans import EncodedChat, Span, Written, assistant_spans, labelled
from llamita.tokenizer.chat_templates import BUILT_IN, built_in_template
from llamita.tokenizer.chat_tools import (
    Syntax,
    before_calls,
    broken_call,
    format_tool_call,
    tool_syntax,
)

__all__ = ["BUILT_IN", "ChatFormat", "EncodedChat"]


class ChatFormat:
    """A template and a tokenizer. Made by `of` (the tokenizer's own template) or `built_in`.

    Messages are objects with `role` and `content` (a text, or a list of text parts), as OpenAI's
    API has them; an assistant may have `tool_calls`. Wrong ones raise TokenizerError.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: str, tool_template: str | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self._tool_template = tool_template
        compile_template(template)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatFormat:
        """The chat format that travels with a tokenizer; TokenizerError where there is none."""
        template = tokenizer.chat_template
        if template is None:
            raise TokenizerError(
                "the tokenizer has no chat template, so how its model is spoken to is not known.",
                hint="Give it one: tokenizer.with_chat_template(BUILT_IN[name].template), where "
                f"name is one of {', '.join(BUILT_IN)}, or a chat_template.jinja in its directory.",
            )
        return cls(tokenizer, template, tokenizer.chat_templates.get(TOOL_USE))

    @classmethod
    def built_in(cls, name: str, tokenizer: Tokenizer) -> ChatFormat:
        """One of `BUILT_IN`; TokenizerError where the tokenizer lacks its control tokens."""
        return cls(tokenizer, built_in_template(name, tokenizer))

    @property
    def tool_syntax(self) -> Syntax | None:
        """How the template writes tool calls: "hermes", "llama3" or "json"; None: it knows none."""
        template = self._tool_template or self.template
        return tool_syntax(template_literals(template), template_variables(template))

    @property
    def reasons(self) -> bool:
        """Whether the template knows reasoning, which then stands before an answer."""
        return "think" in self.template

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The conversation as text, as `transformers` gives it with `tokenize=False`.

        `variables` reach the template (`enable_thinking`, …). For ids use `encode`: in this text a
        control token that a person typed cannot be told from one that the template wrote.
        """
        tools = check_tools(tools)
        template = self._template_for(tools)
        values = {
            **self._special,
            **self._outside(tools, variables),
            "messages": self._in_form(check_messages(messages), template),
            "add_generation_prompt": add_generation_prompt,
        }
        return render_template(template, values)

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> list[int]:
        """The conversation as token ids.

        No text of a message or a tool becomes a control token, but for the tags of well-formed
        `<think>` and `<tool_call>` blocks in an assistant's content: fine-tuning data holds its
        reasoning and calls so. Calls at the end of a content become `tool_calls` where the template
        has a place for them: then it spells them in its own way (spaces, the order of keys, 1.0 or
        1), as it spells calls that were made. A BOS stands in front exactly once where the template
        writes it or the tokenizer adds one.
        """
        return self.encode_parts(self.parts(messages, tools, add_generation_prompt, **variables))

    def parts(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> list[str | int]:
        """The conversation as its texts and the ids of the template's control tokens, in order."""
        written = self._write(messages, tools, variables)
        text = written.render(generation=add_generation_prompt)
        special = self.tokenizer.special_tokens
        return split_at_controls(text, self._control, special, written.shield, ())[0]

    def encode_parts(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of what `parts` gave, cut or continued by a caller: in one go, with one BOS."""
        pieces = with_one_bos(self._encoder.encode(parts), self.tokenizer)
        return [piece.token_id for piece in pieces]

    def encode_with_spans(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        last_turn_only: bool = False,
        **variables: Any,
    ) -> EncodedChat:
        """The ids of `encode`, and which of them the assistant says: what a loss counts.

        Those are the assistant's texts, reasoning and tool calls and the token that ends each of
        its turns, not the header before them. The template's `{% generation %}` blocks tell them;
        without such blocks they are what follows the rendering of the messages before.
        `last_turn_only` counts the last turn of the assistant alone. A template that shows no end
        of a turn gets the tokenizer's EOS behind the last one.

        Raises TokenizerError where the assistant says nothing, or where the template writes a turn
        otherwise once more messages follow it, so that the prompt of generation is not this one.
        """
        written = self._write(messages, tools, variables)
        names = {token_id: name for name, token_id in self.tokenizer.special_tokens.items()}
        ends = [names[token_id] for token_id in self._shown_turn_ends]
        text, spans = assistant_spans(written, ends, last_turn_only)
        pieces, spans = self._pieces(text, written.shield, spans)
        eos = self.tokenizer.eos_token_id
        if not ends and eos is not None and written.messages[-1]["role"] == "assistant":
            end = max(piece.end for piece in pieces)
            pieces.append(Piece(eos, end, end + 1))
            spans.append((end, end + 1))
        return labelled(pieces, spans)

    @cached_property
    def turn_end_ids(self) -> tuple[int, ...]:
        """The control tokens that end a turn of the assistant: what stops generation.

        The first is the usual one; EOS where the template shows none (none at all without EOS).
        """
        eos = self.tokenizer.eos_token_id
        return self._shown_turn_ends or (() if eos is None else (eos,))

    @property
    def shows_turn_ends(self) -> bool:
        """Whether the template writes a control token of the tokenizer behind an answer."""
        return bool(self._shown_turn_ends)

    def parse(self, text: str, *, calls: bool = True) -> dict[str, Any]:
        """What a model answered, as an assistant message in OpenAI's form.

        `text` holds the names of control tokens such as `<tool_call>` (see `answer_text`). The
        message has `content` and, where there are any, `tool_calls` (their `arguments` are JSON
        text) and `reasoning_content`. What is not valid JSON stays content; without `calls`, all
        calls do.
        """
        return parse_answer(text, self.tool_syntax if calls else None, reasons=self.reasons)

    def broken_call(self, text: str) -> str | None:
        """What is wrong with an answer that begins a call and is none; None: it does not."""
        return None if self.tool_syntax is None else broken_call(text, self.tool_syntax)

    def before_calls(self, text: str) -> str:
        """What stands before the first call that a text begins; all where it begins none."""
        return text if self.tool_syntax is None else before_calls(text, self.tool_syntax)

    def answer_text(self, token_ids: Sequence[int]) -> str:
        """The text of generated ids for `parse`: with the names of tokens that structure it."""
        return answer_text(self.tokenizer, token_ids, self.structural_names)

    def format_tool_call(self, call: Mapping[str, Any]) -> str:
        """A tool call as the model is to write it; TokenizerError where the format has none."""
        if self.tool_syntax is None:
            raise self._no_tools()
        return format_tool_call(call, self.tool_syntax)

    @cached_property
    def _encoder(self) -> ChatEncoder:
        return ChatEncoder(self.tokenizer)

    @cached_property
    def structural_names(self) -> dict[int, str]:
        """The control tokens that structure an answer, reasoning and calls, by id."""
        return structural_names(self.tokenizer)

    @cached_property
    def _special(self) -> dict[str, str]:
        return special_token_variables(self.tokenizer)

    @cached_property
    def _shown_turn_ends(self) -> tuple[int, ...]:
        tool_template = self._tool_template or self.template
        names = turn_ends(self.template, tool_template, self._special, self._control)
        found = [self.tokenizer.special_tokens[name] for name in names]
        closing = self.structural_names
        return tuple(dict.fromkeys(token_id for token_id in found if token_id not in closing))

    @cached_property
    def _control(self) -> re.Pattern[str]:
        return control_pattern(self.tokenizer.special_tokens)

    def _in_form(self, messages: list[dict[str, Any]], template: str) -> list[dict[str, Any]]:
        """The messages with their contents as texts or parts, as the template takes them."""
        form = content_form(template, tuple(sorted(self._special.items())))
        return in_form(messages, form)

    def _template_for(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        template = self._tool_template or self.template if tools else self.template
        if tools and "tools" not in template_variables(template):
            raise self._no_tools()
        return template

    @staticmethod
    def _outside(
        tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any]
    ) -> dict[str, Any]:
        plain = {key: plain_data(value, key) for key, value in variables.items()}
        return {"tools": tools, "documents": None, **plain}

    def _write(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> Written:
        """The conversation with its texts behind a shield."""
        tools = check_tools(tools)
        template = self._template_for(tools)
        control = self.tokenizer.special_tokens
        checked = [join_blocks(message) for message in check_messages(messages)]
        if "<tool_call>" in control and "tool_calls" in template:
            checked = [lift_tool_calls(message) for message in checked]
        outside = self._outside(tools, variables)
        shield = Shield(control, [checked, outside, template])
        hidden = self._in_form([shield.hide_message(m) for m in checked], template)
        return Written(template, hidden, {**self._special, **shield.hide(outside)}, shield)

    def _pieces(
        self, text: str, shield: Shield, spans: Sequence[Span] = ()
    ) -> tuple[list[Piece], list[Span]]:
        """The tokens of a rendering, with the spans counted as their places are."""
        special = self.tokenizer.special_tokens
        parts, places = split_at_controls(text, self._control, special, shield, spans)
        return with_one_bos(self._encoder.encode(parts), self.tokenizer), places

    @staticmethod
    def _no_tools() -> TokenizerError:
        return TokenizerError(
            "tools are given, but the model's chat template has no place for them.",
            hint="Use a model that was trained with tools, or leave them out.",
        )
