"""Chat templates run as `transformers` runs them, but within bounds.

The environment is Jinja's immutable sandbox with the settings, filters and functions that
`transformers` gives chat templates, so that both write the same text. On top of that everything
that can grow is weighed (`chat_bounds`): each turn of a loop and call of a macro is a step, and
operators, filters and methods that make long texts out of short ones ask first. And where a shield
has put characters of the texts aside, comparing and searching looks behind it (`chat_looks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from jinja2 import (
    Environment,
    Template,
    TemplateRuntimeError,
    TemplateSyntaxError,
    meta,
    nodes,
    pass_context,
)
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

from llamita.errors import TokenizerError
from llamita.tokenizer.chat_bounds import (
    MAX_INTEGER_BITS,
    BoundExceeded,
    Budget,
    budget,
    check_format,
    spend_on_percent,
    weight,
)
from llamita.tokenizer.chat_filters import bounded_filters, spend_on_method
from llamita.tokenizer.chat_globals import GLOBALS, Refused
from llamita.tokenizer.chat_instrument import INSTRUMENTS, instrument, is_hook
from llamita.tokenizer.chat_looks import (
    LOOKING_METHODS,
    LOOKING_TESTS,
    look,
    looking_test,
    stand_ins,
)
from llamita.tokenizer.chat_turns import FOLLOWING

MAX_TEMPLATE = 1 << 18
_JINJAS_OWN = frozenset({"_loop_vars", "_block_vars"})  # named arguments of every call
_FORBIDDEN_METHODS = frozenset({"translate", "maketrans", "to_bytes", "from_bytes"})

_generation_marks: ContextVar[tuple[str, str] | None] = ContextVar("marks", default=None)


def render_template(
    template: str,
    variables: Mapping[str, Any],
    marks: tuple[str, str] | None = None,
    hidden: Mapping[str, str] | None = None,
) -> str:
    """The text that a Jinja template gives for `variables`, which must be plain data.

    `marks` are put around each `{% generation %}` block. `hidden` are the characters behind private
    ones in the texts: the template decides as if they stood there.

    Raises TokenizerError, with the line, where the template is wrong, refuses the conversation,
    or wants more steps, memory or time than a chat takes.
    """
    compiled = compile_template(template)
    purse = Budget(len(template) + weight(dict(variables)))
    return render_compiled(compiled, purse, variables, marks, hidden)


def render_compiled(
    compiled: Template,
    purse: Budget,
    variables: Mapping[str, Any],
    marks: tuple[str, str] | None = None,
    hidden: Mapping[str, str] | None = None,
) -> str:
    """`render_template` for a template of `environment`, within the bounds of `purse`."""
    tokens = budget.set(purse), _generation_marks.set(marks), stand_ins.set(hidden or {})
    try:
        pieces: list[str] = []
        for piece in compiled.generate(**variables):
            purse.write(len(piece))
            pieces.append(piece)
        return "".join(pieces)
    except Exception as error:  # a template can raise anything
        raise _explained(error) from error
    finally:
        budget.reset(tokens[0])
        _generation_marks.reset(tokens[1])
        stand_ins.reset(tokens[2])


@lru_cache(maxsize=64)
def compile_template(template: str) -> Template:
    """Compile a chat template; TokenizerError with the line where it is none."""
    if len(template) > MAX_TEMPLATE:
        raise TokenizerError(
            f"the chat template has {len(template):,} characters.",
            hint=f"At most {MAX_TEMPLATE:,} are read.",
        )
    try:
        return environment().from_string(template)
    except Exception as error:  # deep nesting ends in errors of Python's own compiler
        raise _explained(error) from error


@lru_cache(maxsize=64)
def template_variables(template: str) -> frozenset[str]:
    """The variables that a template expects from outside (`messages`, `tools`, …)."""
    compile_template(template)
    return frozenset(meta.find_undeclared_variables(environment().parse(template)))


@lru_cache(maxsize=64)
def template_literals(template: str) -> tuple[str, ...]:
    """The texts that stand in a template itself, printed or compared with."""
    compile_template(template)
    tree = environment().parse(template)
    texts = [node.data for node in tree.find_all(nodes.TemplateData)]
    return tuple(texts + [n.value for n in tree.find_all(nodes.Const) if isinstance(n.value, str)])


@lru_cache(maxsize=64)
def has_generation_blocks(template: str) -> bool:
    """Whether the template itself marks what the assistant says, by `{% generation %}`."""
    compile_template(template)
    calls = environment().parse(template).find_all(nodes.ExtensionAttribute)
    return any(call.identifier == _Generation.identifier for call in calls)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}`: what the assistant says."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Macro) -> str:
        marks = _generation_marks.get()
        text: str = caller()
        return text if marks is None else f"{marks[0]}{text}{marks[1]}"


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        check_format(format_spec)
        budget.get().weigh(value)
        text: str = super().format_field(value, format_spec)
        budget.get().spend(len(text))
        return text


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # constants would be worked out while compiling, outside of bounds
            finalize=_finalize,
            extensions=[_Generation, loopcontrols],
        )
        self.filters = bounded_filters(self.filters)
        self.filters["sum"] = self._sum
        self.filters |= INSTRUMENTS | FOLLOWING
        del self.globals["lipsum"]
        self.globals |= GLOBALS
        self.tests |= {name: looking_test(self.tests[name]) for name in LOOKING_TESTS}

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        parts = list(pieces)
        budget.get().spend(sum(map(len, parts)))
        return "".join(parts)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        instrument(tree)
        return tree

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A filter that the template names in a text, as in `map("upper")`."""
        if is_hook(name):
            raise TemplateRuntimeError(f"No filter named {name!r}.")
        return super().call_filter(name, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _FORBIDDEN_METHODS and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%":
            if isinstance(left, str):
                spend_on_percent(left, right)
        elif operator == "+":
            self._spend_on_adding(left, right)
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            bits = bits * abs(right) if operator == "**" else bits + right.bit_length()
            if bits > MAX_INTEGER_BITS:
                raise BoundExceeded("it computes an enormous number")
        elif operator == "*":
            many, times = (left, right) if isinstance(right, int) else (right, left)
            if isinstance(times, int) and isinstance(many, str | bytes | list | tuple):
                budget.get().spend(budget.get().weigh(many) * max(times, 0))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            args = spend_on_method(owner, __obj.__name__, args)
            if stand_ins.get() and __obj.__name__ in LOOKING_METHODS:
                named = {key: kwargs[key] for key in kwargs.keys() - _JINJAS_OWN}
                return look(owner, __obj.__name__, args, named)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text: str = value.__self__
        is_map = value.__name__ == "format_map"

        def bounded(*args: Any, **kwargs: Any) -> str:
            return _Formatter(self).vformat(
                text, () if is_map else args, args[0] if is_map else kwargs
            )

        return bounded

    def _spend_on_adding(self, left: Any, right: Any) -> None:
        if isinstance(left, str | bytes | list | tuple) and type(left) is type(right):
            budget.get().spend(budget.get().weigh(left) + budget.get().weigh(right))

    def _sum(self, values: Iterable[Any], start: Any = 0) -> Any:
        for value in values:
            self._spend_on_adding(start, value)
            start = start + value
        return start


@pass_context
def _finalize(_context: Context, value: Any) -> Any:
    # Taking the context keeps Jinja from calling this while it compiles.
    budget.get().weigh(value)
    return value


def _explained(error: Exception) -> TokenizerError:
    """The error of a template in one line, with the line of the template where that is known."""
    line = error.lineno if isinstance(error, TemplateSyntaxError) else _line_of(error)
    place = f" (line {line})" if line else ""
    message = str(error).rstrip(".") or type(error).__name__
    if isinstance(error, Refused):
        return TokenizerError(f"the chat template refuses this conversation: {message}{place}.")
    if isinstance(error, BoundExceeded):
        return TokenizerError(
            f"the chat template was stopped: {message}{place}.",
            hint="No chat needs that: the template is wrong, or meant to do harm.",
        )
    return TokenizerError(
        f"the chat template fails{place}: {message}.",
        hint="Mend the template, or give messages in the form that it expects.",
    )


def _line_of(error: Exception) -> int | None:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The sandbox that chat templates are compiled for."""
    return _Environment()
