"""A conversation rendered once, from which the renderings of its beginnings are told.

`chat_turns` finds out for which beginnings that is certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Template

from llamita.errors import TokenizerError
from llamita.tokenizer.chat_bounds import Budget, weight
from llamita.tokenizer.chat_sandbox import (
    compile_template,
    environment,
    render_compiled,
    render_template,
)
from llamita.tokenizer.chat_turns import FollowedMessages, Turns, follow_loop, following


class Beginnings:
    """The first messages of a conversation as a template renders them, and all of them.

    `variables` and `hidden` are those of `render_template`, the former without
    `add_generation_prompt`.
    """

    def __init__(
        self, template: str, variables: Mapping[str, Any], hidden: Mapping[str, str]
    ) -> None:
        self._template = template
        self._variables = variables
        self._hidden = hidden
        self._given = len(template) + weight(dict(variables))
        self._starts: Mapping[int, int] = {}
        self._tails: dict[bool, str] = {}
        self.text = self._whole()

    def first(self, count: int, generation: bool = False) -> tuple[int, str]:
        """The rendering of the first `count` messages, with the header of an answer if
        `generation`: up to a place in `text` it is the same, and then it is what is given here."""
        start = self._starts.get(count)
        if start is None:
            messages = self._variables["messages"][:count]
            values = {**self._values(generation), "messages": messages}
            return 0, render_template(self._template, values, hidden=self._hidden)
        if generation not in self._tails:
            self._tails[generation] = self._tail(generation)
        return start, self._tails[generation]

    def _whole(self) -> str:
        """All messages. Notes the places where beginnings end, where that is certain."""
        parts = _followed(self._template)
        if parts is not None:
            turns = Turns(self._variables["messages"])
            values = {**self._values(False), "messages": FollowedMessages(turns)}
            token = following.set(turns)
            try:
                text = render_compiled(parts[0], Budget(self._given), values, hidden=self._hidden)
                self._starts = turns.starts
                return text
            except TokenizerError:
                pass  # It fails with a list as well, or takes nothing else.
            finally:
                following.reset(token)
        return render_template(self._template, self._values(False), hidden=self._hidden)

    def _tail(self, generation: bool) -> str:
        """What stands behind the loop of a template that is followed."""
        parts = _followed(self._template)
        assert parts is not None
        values = self._values(generation)
        return render_compiled(parts[1], Budget(self._given), values, hidden=self._hidden)

    def _values(self, generation: bool) -> dict[str, Any]:
        return {**self._variables, "add_generation_prompt": generation}


@lru_cache(maxsize=64)
def _followed(template: str) -> tuple[Template, Template] | None:
    """The template with its loop followed, and what stands behind the loop; None: no such loop."""
    compile_template(template)
    tree = environment().parse(template)
    tail = follow_loop(tree)
    if tail is None:
        return None
    return environment().from_string(tree), environment().from_string(tail)
