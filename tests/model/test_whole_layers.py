"""A decode step whose layers are one graph each gives what it gives in parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from llamita.model import decode_plan
from llamita.model.decode_plan import DecodePlan
from llamita.model.fused import FusedDecoder
from llamita.model.kv_cache import KVCache
from llamita.model.prefill_plan import PrefillPlan, Stretch
from llamita.model.steps import Steps, whole_layer
from llamita.model.transformer import Transformer

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared keys, norms and biases": {
        "num_key_value_heads": 1,
        "use_qk_norm": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "a window": {"sliding_window": 7},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
}
SLOTS, LENGTHS = [1, 2, 3], [5, 19, 11]


@pytest.fixture
def compiler_that_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The steps that were run as if compiled."""
    ran: list[object] = []
    plain = Steps.run

    def run(self: Steps, step: Any, *given: object) -> Any:
        ran.append(step)
        return plain(self, step, *given)

    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    monkeypatch.setattr(Steps, "run", run)
    return ran


@torch.inference_mode()
def decoded(
    model: Transformer, ids: Tensor, slots: list[int], *, compile: bool, **cache: Any
) -> Tensor:
    """Logits [3, steps, V] of three rows of different lengths, read on by a few steps."""
    decoder, held = FusedDecoder(model, compile=compile), KVCache(model.config, **cache)
    held.resize(6, 40)
    stretches = [Stretch(s, 0, n, 40) for s, n in zip(slots, LENGTHS, strict=True)]
    before = torch.cat([ids[row, :length] for row, length in enumerate(LENGTHS)])
    decoder.logits(before, PrefillPlan(held, model.rope, stretches))
    steps = []
    for step in range(4):
        positions = [length + step for length in LENGTHS]
        tokens = torch.stack([ids[row, at] for row, at in enumerate(positions)])
        plan = DecodePlan(held, model.rope, slots, positions)
        steps.append(decoder.logits(tokens, plan, torch.tensor([0, 1, 2])))
    return torch.stack(steps, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [8, 64])
def test_whole_layers_give_what_layers_in_parts_give(
    make_model, ids, kind, blocks, compiler_that_compiles_nothing, monkeypatch
) -> None:
    monkeypatch.setattr(decode_plan, "_PLACES_OF_ONE_READ", blocks)
    model = make_model(**KINDS[kind])
    parts = decoded(model, ids, SLOTS, compile=False)
    assert whole_layer not in compiler_that_compiles_nothing
    whole = decoded(model, ids, SLOTS, compile=True)
    layers = model.config.num_hidden_layers
    assert compiler_that_compiles_nothing.count(whole_layer) == 4 * layers
    assert (whole - parts).abs().max() <= 1e-5
    cache = {"dtype": torch.bfloat16}
    narrow = decoded(model, ids, SLOTS, compile=True, **cache)
    assert (narrow - decoded(model, ids, SLOTS, compile=False, **cache)).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("fields", "slots"),
    [
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, SLOTS),
        ({}, [0, 2, 3]),  # a slot between them is free
    ],
)
def test_what_is_no_single_read_is_read_in_parts(
    make_model, ids, fields, slots, compiler_that_compiles_nothing
) -> None:
    model = make_model(**fields)
    got = decoded(model, ids, slots, compile=True)
    assert whole_layer not in compiler_that_compiles_nothing
    assert (got - decoded(model, ids, slots, compile=False)).abs().max() <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_layers_give_what_layers_in_parts_give(make_model, ids, dtype, caplog) -> None:
    model = make_model(**KINDS["shared keys, norms and biases"]).to(dtype)
    parts = decoded(model, ids, SLOTS, compile=False, dtype=dtype)
    whole = decoded(model, ids, SLOTS, compile=True, dtype=dtype)
    assert (whole - parts).abs().max() <= (1e-5 if dtype == torch.float32 else 0.1)
    assert not caplog.records
