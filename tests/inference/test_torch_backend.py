"""What the engine asks of PyTorch: the model's own logits, for any slots, and no traces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from llamita.errors import ConfigError
from llamita.inference.backend import Backend, Segment
from llamita.inference.torch_backend import TorchBackend
from llamita.model.transformer import Transformer

TOLERANCE = 2e-5
IDS = torch.randint(0, 256, (4, 48), generator=torch.Generator().manual_seed(2))
NewModel = Callable[..., Transformer]


def segment(
    slot: int, row: int, start: int, end: int, num_logits: int = 1, row_length: int = 0
) -> Segment:
    ids = IDS[row, start:end].tolist()
    return Segment(slot, ids, start, num_logits, row_length or end)


def full(model: Transformer, row: int, end: int) -> np.ndarray:
    with torch.no_grad():
        return model(IDS[row : row + 1, :end])[0].float().numpy()


def ready(model: Transformer, slots: int = 4, **settings: object) -> TorchBackend:
    backend = TorchBackend(model, **settings)
    backend.resize(slots, 48)
    return backend


def test_it_is_a_backend(model: Transformer) -> None:
    backend: Backend = ready(model)
    assert (backend.slots, backend.capacity) == (4, 48)
    assert backend.max_segment >= 48
    assert backend.slot_bytes(1) == 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, width


def test_prefill_gives_the_logits_asked_for_in_the_order_of_the_segments(model) -> None:
    backend = ready(model)
    got = backend.prefill([segment(3, 0, 0, 9, 2), segment(0, 1, 0, 20, 0), segment(1, 2, 0, 4, 4)])
    wanted = np.concatenate((full(model, 0, 9)[7:], full(model, 2, 4)))
    assert got.dtype == np.float32
    assert got.shape == (6, model.config.vocab_size)
    np.testing.assert_allclose(got, wanted, atol=TOLERANCE)
    assert backend.prefill([segment(0, 1, 20, 30, 0)]).shape == (0, model.config.vocab_size)
    got = backend.prefill([segment(0, 1, 30, 40)])
    np.testing.assert_allclose(got, full(model, 1, 40)[39:], atol=TOLERANCE)


@pytest.mark.parametrize("slots", [[0, 1, 2], [1, 2, 3], [3, 0, 2], [2], [1, 0]])
def test_a_step_gives_each_slot_its_own_row_in_the_order_asked(model, slots: list[int]) -> None:
    backend = ready(model)
    lengths = [12, 5, 30, 21]
    backend.prefill([segment(slot, slot, 0, lengths[slot], 0) for slot in range(4)])
    for step in range(3):
        at = [lengths[slot] + step for slot in slots]
        got = backend.decode(slots, IDS[slots, at].tolist(), at)
        wanted = [full(model, slot, end + 1)[-1] for slot, end in zip(slots, at, strict=True)]
        np.testing.assert_allclose(got, np.stack(wanted), atol=TOLERANCE)


def test_a_row_gets_the_same_alone_and_among_others(model) -> None:
    alone, together = ready(model), ready(model)
    alone.prefill([segment(1, 1, 0, 17, 0)])
    together.prefill([segment(0, 0, 0, 30, 0), segment(1, 1, 0, 17, 0), segment(2, 2, 0, 3, 0)])
    ids = IDS[[0, 1, 2], [30, 17, 3]].tolist()
    a = alone.decode([1], ids[1:2], [17])
    b = together.decode([0, 1, 2], ids, [30, 17, 3])
    np.testing.assert_allclose(a[0], b[1], atol=TOLERANCE)


def test_a_prefix_is_taken_over_where_keys_are_the_same_for_every_row(new_model: NewModel) -> None:
    model = new_model()
    backend = ready(model)
    backend.prefill([segment(0, 0, 0, 30, 0)])
    assert backend.reusable(30, 12) == 12
    backend.copy(0, 2, 12)
    got = backend.prefill([segment(2, 0, 12, 20)])
    np.testing.assert_allclose(got, full(model, 0, 20)[19:], atol=TOLERANCE)
    dynamic = new_model(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert ready(dynamic).reusable(30, 12) == 0


def test_the_length_a_row_will_have_turns_the_keys_of_dynamic_scaling(new_model: NewModel) -> None:
    scaling = {"rope_type": "dynamic", "factor": 4.0}
    model = new_model(rope_scaling=scaling, max_position_embeddings=16)
    backend = ready(model)
    backend.prefill([segment(0, 0, 0, 10, 0, row_length=40)])
    got = backend.prefill([segment(0, 0, 10, 40, row_length=40)])
    np.testing.assert_allclose(got, full(model, 0, 40)[39:], atol=TOLERANCE)


def test_a_sliding_window_has_a_cache_of_constant_size(new_model: NewModel) -> None:
    model = new_model(sliding_window=16, max_position_embeddings=100_000)
    backend = TorchBackend(model)
    backend.resize(1, 100_000)
    assert backend.max_segment < 1000
    assert backend.slot_bytes(100_000) < 300_000


def test_the_model_keeps_its_mode_also_when_reading_fails(new_model: NewModel) -> None:
    model = new_model(attention_dropout=0.5, residual_dropout=0.5).train()
    model.model.norm.eval()
    modes = [module.training for module in model.modules()]
    backend = ready(model)
    got = backend.prefill([segment(0, 0, 0, 20)])
    assert [module.training for module in model.modules()] == modes
    np.testing.assert_allclose(got, full(model.eval(), 0, 20)[19:], atol=TOLERANCE)
    model.train()
    with pytest.raises(ValueError, match="past the cache's capacity"):
        backend.decode([0], [1], [48])
    with pytest.raises(IndexError):
        backend.decode([0], [9999], [20])
    assert all(module.training for module in model.modules())


def test_a_model_can_be_trained_between_calls(new_model: NewModel) -> None:
    model = new_model()
    backend = ready(model)
    for _ in range(2):
        version = backend.weights_version
        got = backend.prefill([segment(0, 0, 0, 20)])
        np.testing.assert_allclose(got, full(model, 0, 20)[19:], atol=TOLERANCE)
        assert backend.weights_version == version
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(IDS[:, :20]).square().mean().backward()
        optimizer.step()
        assert backend.weights_version != version
    model.load_state_dict(new_model(initializer_range=0.5).state_dict())
    assert backend.weights_version != version


def test_a_model_may_be_cast_between_calls(new_model: NewModel) -> None:
    model = new_model()
    backend = ready(model)
    backend.prefill([segment(0, 0, 0, 20)])
    version = backend.weights_version
    model.to(torch.bfloat16)
    assert backend.weights_version != version
    assert (backend.slots, backend.capacity) == (4, 48)
    got = backend.prefill([segment(0, 0, 0, 20)])
    assert backend.slot_bytes(1) == 2 * 2 * 2 * 8 * 2
    np.testing.assert_allclose(got, full(model, 0, 20)[19:], atol=0.05)


def test_a_cache_given_up_is_had_again_and_a_smaller_one_keeps_what_fits(model) -> None:
    backend = ready(model)
    backend.prefill([segment(1, 1, 0, 20, 0)])
    backend.resize(2, 16)
    got = backend.prefill([segment(1, 1, 9, 16)])
    np.testing.assert_allclose(got, full(model, 1, 16)[15:], atol=TOLERANCE)
    backend.resize(0, 0)
    assert (backend.slots, backend.capacity) == (0, 0)
    backend.resize(3, 48)
    got = backend.prefill([segment(2, 1, 0, 20)])
    np.testing.assert_allclose(got, full(model, 1, 20)[19:], atol=TOLERANCE)


def test_a_model_made_in_inference_mode_is_read(new_model: NewModel) -> None:
    with torch.inference_mode():
        model = new_model()
    backend = ready(model)
    version = backend.weights_version
    backend.prefill([segment(0, 0, 0, 20, 0)])
    got = backend.decode([0], [int(IDS[0, 20])], [20])
    np.testing.assert_allclose(got[0], full(model, 0, 21)[-1], atol=TOLERANCE)
    assert backend.weights_version == version


class Sum(torch.nn.Module):
    """Two linear maps, as an adapter is; without a `weight` of its own."""

    def __init__(self, base: torch.nn.Linear) -> None:
        super().__init__()
        self.base, self.more = base, torch.nn.Linear(base.in_features, base.out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.more(x)


def test_adapters_are_heeded_also_when_they_come_between_calls(new_model: NewModel) -> None:
    model = new_model()
    backend = ready(model)
    backend.prefill([segment(0, 0, 0, 20, 0)])
    for holder, name in ((model.model.layers[1].mlp, "gate_proj"), (model, "lm_head")):
        version = backend.weights_version
        setattr(holder, name, Sum(getattr(holder, name)))
        assert backend.weights_version != version
        got = backend.prefill([segment(0, 0, 0, 20)])
        np.testing.assert_allclose(got, full(model, 0, 20)[19:], atol=TOLERANCE)


def test_a_cache_in_bfloat16_takes_half_the_memory_and_stays_close(model) -> None:
    backend = ready(model, kv_cache_dtype="bfloat16")
    assert backend.slot_bytes(48) == ready(model).slot_bytes(48) / 2
    backend.prefill([segment(0, 0, 0, 30, 0)])
    got = backend.decode([0], [int(IDS[0, 30])], [30])
    np.testing.assert_allclose(got[0], full(model, 0, 31)[-1], atol=0.1)
    with pytest.raises(ConfigError, match="float8"):
        TorchBackend(model, kv_cache_dtype="float8")
