"""Which tokens of a conversation the assistant says: what a loss counts in fine-tuning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llamita.errors import TokenizerError
from llamita.tokenizer.chat_beginnings import Beginnings
from llamita.tokenizer.chat_encode import Piece
from llamita.tokenizer.chat_sandbox import has_generation_blocks, render_template
from llamita.tokenizer.chat_shield import Shield

IGNORED = -100


class TurnsDifferError(TokenizerError):
    """A template writes a turn otherwise once it is part of a longer conversation."""


Span = tuple[int, int]


@dataclass(frozen=True)
class EncodedChat:
    """A conversation as ids, and for each id whether the assistant says it."""

    token_ids: list[int]
    assistant_mask: list[bool]

    @property
    def labels(self) -> list[int]:
        """The ids that the assistant says, each at its own place; -100 elsewhere."""
        pairs = zip(self.token_ids, self.assistant_mask, strict=True)
        return [token_id if said else IGNORED for token_id, said in pairs]


@dataclass(frozen=True)
class Written:
    """A conversation ready to be rendered, with its texts behind a shield."""

    template: str
    messages: list[dict[str, Any]]
    variables: Mapping[str, Any]
    shield: Shield

    def render(self, generation: bool = False, marked: bool = False) -> str:
        """The conversation as text, and the header of an answer if `generation`."""
        return render_template(
            self.template,
            {**self.variables, "messages": self.messages, "add_generation_prompt": generation},
            self.shield.marks if marked else None,
            self.shield.hidden,
        )

    def beginnings(self) -> Beginnings:
        """The conversation and its beginnings, without the header of an answer."""
        variables = {**self.variables, "messages": self.messages}
        return Beginnings(self.template, variables, self.shield.hidden)


def assistant_spans(
    written: Written, turn_ends: Sequence[str], last_turn_only: bool
) -> tuple[str, list[Span]]:
    """The rendering, and the places in it where the assistant speaks.

    `turn_ends` are the names of the tokens that end its turns; they belong to the spans. A message
    with the `weight` 0 is not learned, as in OpenAI's fine-tuning data.

    Raises TokenizerError where there is no such place, or where the prompt of a turn is not the
    beginning of the whole.
    """
    turns = [i for i, message in enumerate(written.messages) if message["role"] == "assistant"]
    learned = [i for i in turns if _is_learned(written.messages[i], i)]
    if turns and not learned:
        raise TokenizerError(
            "every message of the assistant has the weight 0: there is nothing to learn from.",
            hint="Leave the conversation out, or give an answer of it the weight 1.",
        )
    if not turns:
        raise TokenizerError(
            "no message of the conversation is the assistant's: there is nothing to learn from.",
            hint="Give conversations with at least one message of the role assistant.",
        )
    if has_generation_blocks(written.template):
        text, spans = _marked_spans(written.render(marked=True), *written.shield.marks)
        spans = [(start, _past_turn_end(text, end, turn_ends)) for start, end in spans]
        if learned != turns:
            if len(spans) != len(turns):
                raise TokenizerError(
                    "a message has the weight 0, and the {% generation %} blocks of the chat "
                    "template do not tell which of them is its own.",
                    hint="Leave the weights out, or put each answer into one block.",
                )
            spans = [span for i, span in zip(turns, spans, strict=True) if i in learned]
        return text, spans[-1:] if last_turn_only else spans
    chosen = learned[-1:] if last_turn_only else learned
    beginnings = written.beginnings()
    count = len(written.messages)
    return beginnings.text, [_turn_span(beginnings, i, i + 1 == count, turn_ends) for i in chosen]


def _is_learned(message: Mapping[str, Any], index: int) -> bool:
    weight = message.get("weight", 1)
    if isinstance(weight, bool) or weight not in (0, 1):
        raise TokenizerError(f"message {index} has the weight {weight!r}.", hint="It is 0 or 1.")
    return bool(weight)


def labelled(pieces: Sequence[Piece], spans: Sequence[Span]) -> EncodedChat:
    """The tokens, with those marked that share a character with a span.

    Raises TokenizerError where no token is marked: a run would learn nothing from it.
    """
    mask = []
    rest = sorted(spans, reverse=True)
    for _, start, end in pieces:  # in the order of the text, as the spans
        while rest and rest[-1][1] <= start:
            rest.pop()
        mask.append(bool(rest) and _overlaps(start, end, rest[-1]))
    if not any(mask):
        raise TokenizerError(
            "the chat template marks nothing that the assistant says: there is nothing to learn.",
            hint="Its {% generation %} blocks must hold the assistant's texts, and a conversation "
            "must have such texts.",
        )
    return EncodedChat([piece.token_id for piece in pieces], mask)


def _overlaps(start: int, end: int, span: Span) -> bool:
    if start == end:  # one of the bytes of a character, or a space put in front
        return span[0] <= start < span[1]
    return start < span[1] and end > span[0]


def _marked_spans(marked: str, start_mark: str, end_mark: str) -> tuple[str, list[Span]]:
    """The text without its marks, and the outermost spans between them."""
    pieces: list[str] = []
    spans: list[Span] = []
    place = depth = start = 0
    for piece in re.split(f"([{start_mark}{end_mark}])", marked):
        if piece == start_mark:
            start = start if depth else place
            depth += 1
        elif piece == end_mark:
            depth -= 1
            if not depth and place > start:
                spans.append((start, place))
        else:
            pieces.append(piece)
            place += len(piece)
    return "".join(pieces), spans


def _past_turn_end(text: str, end: int, turn_ends: Sequence[str]) -> int:
    """Where a turn ends whose `{% generation %}` block leaves out the token that ends it."""
    if text.endswith(tuple(turn_ends), 0, end) or not turn_ends:
        return end
    following = re.compile(rf"\s*(?:{_any_of(turn_ends).pattern})").match(text, end)
    return following.end() if following else end


def _turn_span(beginnings: Beginnings, index: int, is_last: bool, turn_ends: Sequence[str]) -> Span:
    text = beginnings.text
    prompt_place, prompt = beginnings.first(index, generation=True)
    place, turn = (len(text), "") if is_last else beginnings.first(index + 1)
    # Up to here all three are the same.
    same = min(prompt_place, place)
    prompt, turn = text[same:prompt_place] + prompt, text[same:place] + turn
    # A template may write an end of text behind any rendering: a turn goes to its first end.
    ended = _any_of(turn_ends).search(turn, len(prompt)) if turn_ends else None
    end = ended.end() if ended else len(turn)
    if not (turn.startswith(prompt) and text.startswith(turn[:end], same)):
        raise TurnsDifferError(
            f"the chat template writes the turn of message {index}, or what stands before it, "
            "otherwise once it is part of this conversation than when it is generated (it may drop "
            "earlier reasoning), so what the assistant says there cannot be told.",
            hint="Mark the answers by {% generation %} in the model's chat_template.jinja; or, in "
            "Python, count the last turn alone (last_turn_only) of each beginning of it.",
        )
    return same + len(prompt), same + end


def _any_of(names: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, names)))
