"""PyTorch's pickles, interpreted without importing, calling or building anything of theirs.

A pickle is a program. `torch.load(weights_only=True)` runs it with a list of allowed functions, but
some of those make tensors of any size from a few bytes. Here each opcode is followed by our own
hands (https://docs.python.org/3/library/pickletools.html): plain values stay plain, a tensor
becomes a `TensorRecord` that says where its numbers lie, and everything else is refused.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from collections.abc import Callable
from io import BytesIO
from typing import Any

import torch

from llamita.formats.torch_calls import call, storage
from llamita.formats.torch_records import GlobalName, MoreThanWeights, describe, is_plain_key

MOST_STEPS = 1_000_000
MOST_COPIED = 64_000_000
"""Bytes and elements that a pickle may copy from one of its values into another."""

_LARGEST_INTEGER_BITS = 512
_MARK = object()


def load_pickle(stream: BytesIO) -> Any:
    """The value of the pickle at the stream's position, which is left behind it.

    Returns:
        Plain values, `TensorRecord`s, torch's dtypes, devices and sizes. Containers may hold one
        another more than once, and even themselves.

    Raises:
        MoreThanWeights: making the value would take code.
        ValueError: the pickle is damaged, or asks for far more than it holds.
    """
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if count >= MOST_STEPS:
            raise ValueError(f"its pickle has more than {MOST_STEPS:,} steps")
        step = _STEPS.get(opcode.name)
        if step is None:
            raise MoreThanWeights(f"the pickle opcode {opcode.name}")
        step(machine, argument)
    return machine.pop()


class _Machine:
    """The stack and the memo of the pickle language."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._copied = 0

    def push(self, value: Any) -> None:
        if type(value) is int and value.bit_length() > _LARGEST_INTEGER_BITS:
            raise ValueError(f"its pickle holds a number of {value.bit_length()} bits")
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("its pickle takes more values than it gives")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                values = self.stack[index + 1 :]
                del self.stack[index:]
                return values
        raise ValueError("its pickle takes more values than it gives")

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind) or self.stack[-1] is _MARK:
            raise ValueError("its pickle fills something that is no container of that kind")
        return self.stack[-1]

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError(f"its pickle recalls the value {index}, which it never kept")
        self.stack.append(self.memo[index])

    def keep(self, index: int) -> None:
        self.memo[index] = self.top(object)

    def make_tuple(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def extend(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def add_items(self, values: list[Any]) -> None:
        if not all(map(is_plain_key, values)):
            raise MoreThanWeights("a set of other things than plain values")
        self.top(set).update(values)

    def set_items(self, values: list[Any]) -> None:
        if len(values) % 2:
            raise ValueError("its pickle has a key without a value")
        table = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not is_plain_key(key):
                raise MoreThanWeights(f"a table with {describe(key)} as a key")
            table[key] = value

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def name(self, name: str) -> None:
        module, _, attribute = name.partition(" ")
        module = module.replace("__builtin__", "builtins")  # as it is called in protocol 2
        dtype = getattr(torch, attribute, None) if module == "torch" else None
        self.push(dtype if isinstance(dtype, torch.dtype) else GlobalName(f"{module}.{attribute}"))

    def name_on_stack(self) -> None:
        attribute, module = self.pop(), self.pop()
        if not isinstance(attribute, str) or not isinstance(module, str):
            raise ValueError("its pickle names something by what is no name")
        self.name(f"{module} {attribute}")

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, GlobalName) or not isinstance(arguments, tuple):
            raise ValueError("its pickle calls something that is no function")
        self._copied += sum(len(a) for a in arguments if hasattr(a, "__len__"))
        if self._copied > MOST_COPIED:
            raise ValueError("its pickle copies its values over and over")
        self.push(call(function.name, arguments))

    def build(self) -> None:
        """A state dict carries `_metadata` as an attribute, which says nothing about weights."""
        state = self.pop()
        if not isinstance(state, dict) or not isinstance(self.top(object), OrderedDict):
            raise MoreThanWeights(f"a state for {describe(self.top(object))}")


_PUSHES = (
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8", "SHORT_BINSTRING", "BINSTRING"),
)

_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    **dict.fromkeys(_PUSHES, _Machine.push),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda machine, _: None),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, _: machine.make_tuple(1),
    "TUPLE2": lambda machine, _: machine.make_tuple(2),
    "TUPLE3": lambda machine, _: machine.make_tuple(3),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.pop_to_mark()),
    "ADDITEMS": lambda machine, _: machine.add_items(machine.pop_to_mark()),
    "SETITEM": lambda machine, _: machine.set_item(),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "BINPUT": _Machine.keep,
    "LONG_BINPUT": _Machine.keep,
    "MEMOIZE": lambda machine, _: machine.keep(len(machine.memo)),
    "BINGET": _Machine.recall,
    "LONG_BINGET": _Machine.recall,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": lambda machine, _: machine.name_on_stack(),
    "BINPERSID": lambda machine, _: machine.push(storage(machine.pop())),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
}
