"""Changes a parsed chat template so that whatever can repeat or grow asks first.

Jinja lets a sandbox intercept operators and calls, but not loops, comparisons, the operator `~` and
literals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes

from llamita.tokenizer.chat_bounds import budget
from llamita.tokenizer.chat_looks import as_it_is

_PREFIX = "hook: "


def instrument(node: nodes.Node) -> None:
    """Count steps in loops and macros (`tick`), join by `join_texts`, weigh by `literal`.

    What is compared goes through `as_it_is`. A loop for its first item alone ends behind that.
    """
    for name, value in list(node.iter_fields()):
        if isinstance(value, nodes.Node):
            instrument(value)
            setattr(node, name, _changed(value))
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, nodes.Node):
                    instrument(item)
            setattr(node, name, [_changed(v) if isinstance(v, nodes.Node) else v for v in value])
    if isinstance(node, nodes.Compare):
        sides: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        for side in sides:
            side.expr = hook("as_it_is", side.expr, node)
    if isinstance(node, nodes.For) and _is_for_first(node):
        node.body.append(nodes.Break(lineno=node.lineno))
    if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
        node.body.insert(0, hook_statement("tick", node))


def _is_for_first(loop: nodes.For) -> bool:
    """Whether all that the loop does stands under `{% if loop.first %}`."""
    if len(loop.body) != 1 or loop.test or loop.else_ or loop.recursive:
        return False
    only = loop.body[0]
    return (
        isinstance(loop.iter, nodes.Name)
        and isinstance(loop.target, nodes.Name)
        and isinstance(only, nodes.If)
        and only.test == nodes.Getattr(nodes.Name("loop", "load"), "first", "load")
        and not (only.elif_ or only.else_)
    )


def _changed(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.Concat):
        return hook("join_texts", nodes.Tuple(node.nodes, "load"), node)
    if isinstance(node, nodes.List | nodes.Dict) or (
        isinstance(node, nodes.Tuple) and node.ctx == "load"
    ):
        return hook("literal", node, node)
    return node


def hook(name: str, value: nodes.Node, at: nodes.Node) -> nodes.Filter:
    """What the hook `name` makes of a value. Hooks are filters, for those are called without the
    detours that a sandbox makes with calls; `is_hook` tells them from what templates may name."""
    return nodes.Filter(value, _PREFIX + name, [], [], None, None, lineno=at.lineno)


def hook_statement(name: str, at: nodes.Node) -> nodes.ExprStmt:
    """A statement that tells the hook `name` that the rendering has come to it."""
    return nodes.ExprStmt(hook(name, nodes.Const(None), at), lineno=at.lineno)


def hook_filters(hooks: Mapping[str, Callable[[Any], Any]]) -> dict[str, Callable[[Any], Any]]:
    """Functions as the filters that `hook` calls."""
    return {_PREFIX + name: function for name, function in hooks.items()}


def is_hook(name: str) -> bool:
    """Whether a filter is a hook, which only `hook` may put into a template."""
    return name.startswith(_PREFIX)


def _tick(_value: None) -> None:
    budget.get().step()


def _join_texts(values: tuple[Any, ...]) -> str:
    """The operator `~`."""
    purse = budget.get()
    for value in values:
        purse.weigh(value)
    texts = [str(value) for value in values]
    purse.spend(sum(map(len, texts)))
    return "".join(texts)


def _literal(value: Any) -> Any:
    """A list, tuple or dictionary that the template writes out."""
    budget.get().weigh(value)
    return value


INSTRUMENTS = hook_filters(
    {"tick": _tick, "join_texts": _join_texts, "literal": _literal, "as_it_is": as_it_is}
)
"""The filters of instrumented templates."""
