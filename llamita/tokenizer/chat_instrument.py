"""Changes a parsed chat template so that whatever can repeat or grow asks its environment first.

Jinja lets a sandbox intercept operators and calls, but not loops, comparisons, the operator `~` and
literals.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes


def instrument(node: nodes.Node) -> None:
    """Count steps in loops and macros (`tick`), join by `join_texts`, weigh by `literal`.

    What is compared goes through `as_it_is`.
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
            side.expr = _environment_call("as_it_is", [side.expr], node)
    if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
        tick = nodes.ExprStmt(_environment_call("tick", [], node), lineno=node.lineno)
        node.body.insert(0, tick)


def _changed(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.Concat):
        return _environment_call("join_texts", node.nodes, node)
    if isinstance(node, nodes.List | nodes.Dict) or (
        isinstance(node, nodes.Tuple) and node.ctx == "load"
    ):
        return _environment_call("literal", [node], node)
    return node


def _environment_call(name: str, arguments: list[Any], at: nodes.Node) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name, lineno=at.lineno)
    return nodes.Call(function, arguments, [], None, None, lineno=at.lineno)
