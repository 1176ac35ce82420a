"""Which parameter is updated by what."""

from __future__ import annotations

import torch

from llamita.config import preset
from llamita.model import Transformer
from llamita.training.settings.recipe import Optimizer
from llamita.training.steps.optimizers import build_optimizers, clip_gradients, set_learning_rate


def _model(**fields: object) -> Transformer:
    return Transformer(preset("tiny", 100, **fields)).initialize(0)


def test_weight_decay_falls_on_matrices_alone() -> None:
    model = _model(attention_bias=True, use_qk_norm=True)
    [adamw] = build_optimizers(model, Optimizer(name="adamw", weight_decay=0.3), "float32")
    decay = {id(p): g["weight_decay"] for g in adamw.param_groups for p in g["params"]}
    for parameter in model.parameters():
        assert decay[id(parameter)] == (0.3 if parameter.dim() == 2 else 0.0)


def test_every_parameter_belongs_to_exactly_one_optimizer() -> None:
    for name in ("adamw", "muon"):
        for tied in (True, False):
            model = _model(tie_word_embeddings=tied)
            optimizer = Optimizer(name=name)  # type: ignore[arg-type]
            optimizers = build_optimizers(model, optimizer, "float32")
            held = [id(p) for o in optimizers for g in o.param_groups for p in g["params"]]
            assert sorted(held) == sorted(id(p) for p in model.parameters())


def test_muon_takes_the_layers_matrices_and_leaves_tables_to_adamw() -> None:
    model = _model(tie_word_embeddings=False)
    muon, adamw = build_optimizers(model, Optimizer(name="muon"), "float32")
    in_muon = {id(p) for g in muon.param_groups for p in g["params"]}
    in_adamw = {id(p) for g in adamw.param_groups for p in g["params"]}
    assert id(model.model.layers[0].self_attn.q_proj.weight) in in_muon
    assert {id(model.lm_head.weight), id(model.model.embed_tokens.weight)} <= in_adamw
    assert id(model.model.norm.weight) in in_adamw


def test_the_learning_rate_reaches_every_group() -> None:
    optimizers = build_optimizers(_model(), Optimizer(name="muon"), "float32")
    set_learning_rate(optimizers, 0.125)
    assert {g["lr"] for o in optimizers for g in o.param_groups} == {0.125}


def test_clipping_leaves_at_most_the_given_norm_and_tells_the_norm_before() -> None:
    model = _model()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = sum(p.numel() for p in model.parameters()) ** 0.5
    assert abs(clip_gradients(model, 1.0) - before) < 1e-2
    after = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    assert abs(after**0.5 - 1.0) < 1e-3
