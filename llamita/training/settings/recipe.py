"""A training run as data: every setting, with its default and its limits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from llamita.config import FIELD_NAMES, ModelConfig, parse_size, preset, shape_for
from llamita.errors import ConfigError
from llamita.training.settings.lora import Lora
from llamita.training.settings.table import Table

DEFAULT_PRESET = "small"
DEFAULT_STEPS = 5000

WHOLE_SHAPES = ("preset", "params")
"""Settings of `model` that give all of it."""
_SIZE_FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)


class Source(Table):
    """Text to train on: a DATA folder, its share of the rows (None: as many as it has), and the
    hash of its tokens, which a replay must find again (None: whatever lies there)."""

    path: str
    weight: float | None = Field(None, gt=0)
    fingerprint: str | None = None


class Batch(Table):
    """How many tokens one optimizer step sees: sequences × accumulation × context_length.

    `packing`: "stream" cuts rows out of the tokens as they lie; "documents" puts whole documents
    together that fill a row (and keeps them apart by document masks); only those longer than the
    context are cut.
    """

    context_length: int = Field(256, ge=1)
    sequences: int = Field(16, ge=1)
    accumulation: int = Field(1, ge=1)
    packing: Literal["stream", "documents"] = "stream"
    document_mask: bool = False


class Optimizer(Table):
    """`muon` orthogonalizes the updates of the layers' matrices and leaves the rest to AdamW.

    `learning_rate` is the schedule's peak; `auto` follows from the model, the batch and the length
    of the run (`learning_rates`), and is then written down.
    """

    name: Literal["adamw", "muon"] = "muon"
    learning_rate: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    weight_decay: float = Field(0.1, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    muon_momentum: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    clip_norm: float = Field(1.0, gt=0)


class Schedule(Table):
    """Warm-up, then `wsd` (stable, then a decay over the last part) or `cosine`."""

    kind: Literal["wsd", "cosine"] = "wsd"
    warmup_fraction: float = Field(0.02, ge=0, le=1)
    decay_fraction: float = Field(0.3, ge=0, le=1)
    final_fraction: float = Field(0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _fits(self) -> Schedule:
        if self.kind == "wsd" and self.warmup_fraction + self.decay_fraction > 1:
            raise ValueError("warmup_fraction and decay_fraction together are more than the run")
        return self


class Length(Table):
    """How long to train: one of the three. `minutes` becomes steps once, when a run starts."""

    steps: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    minutes: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one_of_three(self) -> Length:
        given = [name for name in ("steps", "tokens", "minutes") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are both given; only one can hold")
        return self


class Watch(Table):
    """What is looked at on the way. `validations` are spread evenly; the last step is one.

    `validate_every` steps, where given, stand in their place. After `patience` validations without
    a better loss the run ends (0: never).
    """

    validations: int = Field(10, ge=1)
    validate_every: int | None = Field(None, ge=1)
    validation_tokens: int = Field(32768, ge=1)
    patience: int = Field(0, ge=0)
    log_every: int = Field(10, ge=1)
    sample_prompt: str = ""
    sample_tokens: int = Field(60, ge=0)


class Checkpoints(Table):
    """A checkpoint every `every_minutes`, at each validation, and every `keep_every` steps.

    The newest `keep` are kept, and those at multiples of `keep_every` for good.
    """

    every_minutes: float = Field(10.0, gt=0)
    keep: int = Field(2, ge=1)
    keep_every: int | None = Field(None, ge=1)


class Health(Table):
    """Which steps are skipped, and how many of them in a row end the run.

    A loss or gradient that is no number, and, unless `spike_factor` is 0, a gradient norm above
    `spike_factor` times the median of recent ones, or a loss above theirs by as many times their
    median absolute deviation and more than 1.5 nats. Without `skip_nonfinite` the first number that
    is none ends the run.
    """

    skip_nonfinite: bool = True
    spike_factor: float = Field(10.0, ge=0)
    stop_after: int = Field(10, ge=1)

    @model_validator(mode="after")
    def _leaves_something(self) -> Health:
        if 0 < self.spike_factor <= 1:
            raise ValueError(
                f"spike_factor is {self.spike_factor:g}; it must be 0 (off) or above 1, as about "
                "half of all steps lie above their median"
            )
        return self


class Machine(Table):
    """How to compute. `auto` is decided by a probe at the start and then written down.

    `deterministic` sums in the same order every time, so that a run can be repeated to the bit.
    `parallel` is how several ranks (torchrun) share the weights: `ddp`, each has all of them, or
    `fsdp`, each has a part. It is decided anew by each call, as ranks may be other ones.
    `activation_checkpointing` computes each layer again in the backward pass instead of keeping
    what it needs: less memory, a third more work, the same numbers. `check_memory` refuses a run
    that would not fit the memory or the disk, before its first step.
    """

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    deterministic: bool = True
    parallel: Literal["auto", "ddp", "fsdp"] = "auto"
    activation_checkpointing: bool = False
    check_memory: bool = True


class Teacher(Table):
    """A bigger model with the same tokenizer to learn from (distillation, arXiv:1503.02531).

    The loss is (1 - weight) × cross-entropy + weight × temperature² × KL(teacher ‖ student).
    `precision` is what the teacher computes in; `auto`, its checkpoint's where this machine is
    quick at it. `fingerprint` is the model's, which a replay must find again.
    """

    model: str
    weight: float = Field(0.5, gt=0, le=1)
    temperature: float = Field(1.0, gt=0, le=100)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    fingerprint: str | None = None


class Recipe(Table):
    """All settings of one run.

    `init` is the model a run goes on from, which then gives the shape in place of `model`, and
    `init_fingerprint` its hash, which a replay must find again.
    """

    seed: int = Field(0, ge=0, lt=2**63)
    data: tuple[Source, ...] = ()
    model: dict[str, Any] = Field(default_factory=lambda: {"preset": DEFAULT_PRESET})
    batch: Batch = Batch()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    length: Length = Length(steps=DEFAULT_STEPS)
    watch: Watch = Watch()
    checkpoints: Checkpoints = Checkpoints()
    health: Health = Health()
    machine: Machine = Machine()
    init: str | None = None
    init_fingerprint: str | None = None
    teacher: Teacher | None = None
    lora: Lora | None = None

    @model_validator(mode="after")
    def _lora_has_a_base(self) -> Recipe:
        if self.lora is not None and self.init is None:
            raise ValueError("lora adapts a model, and none is named to begin with (init, --init)")
        if self.lora is not None and self.optimizer.name != "adamw":
            raise ValueError(
                f"lora is trained by AdamW, and optimizer.name is {self.optimizer.name!r}"
            )
        return self

    @model_validator(mode="after")
    def _weights_for_all_or_none(self) -> Recipe:
        weighted = [source.weight is not None for source in self.data]
        if any(weighted) and not all(weighted):
            missing = self.data[weighted.index(False)].path
            raise ValueError(f"data {missing!r} has no weight, but others have one")
        return self

    @model_validator(mode="before")
    @classmethod
    def _init_gives_the_shape(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("init") and "model" not in values:
            return {**values, "model": {}}
        return values

    @model_validator(mode="after")
    def _known_model_settings(self) -> Recipe:
        for name in self.model:
            if name not in FIELD_NAMES | set(WHOLE_SHAPES):
                raise ValueError(f"model has no setting {name!r}{nearest(name, FIELD_NAMES)}")
        given = [name for name in WHOLE_SHAPES if name in self.model]
        given += ["init"] if self.init else []
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are both given; only one can give the shape")
        if "params" in self.model:
            parse_size(str(self.model["params"]))
            for name in _SIZE_FIELDS:
                if name in self.model:
                    raise ValueError(f"model.{name} and model.params are both given")
        return self

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step trains on."""
        batch = self.batch
        return batch.sequences * batch.accumulation * batch.context_length

    @property
    def shape_fields(self) -> dict[str, Any]:
        """The settings of `model` that are fields of a `ModelConfig`."""
        return {name: value for name, value in self.model.items() if name not in WHOLE_SHAPES}

    def model_shape(self, vocab_size: int, **token_ids: Any) -> ModelConfig:
        """The model this recipe trains for a vocabulary; a preset's fields may be overridden.

        Raises:
            ConfigError: a field has a wrong value, or does not fit the tokenizer or the batch.
        """
        fields = {
            "vocab_size": vocab_size,
            "max_position_embeddings": self.batch.context_length,
            **token_ids,
            **self.shape_fields,
        }
        if isinstance(fields["vocab_size"], int) and fields["vocab_size"] < vocab_size:
            raise ConfigError(
                f"model.vocab_size is {fields['vocab_size']}, less than the tokenizer's "
                f"{vocab_size} tokens."
            )
        if fields["max_position_embeddings"] < self.batch.context_length:
            raise ConfigError(
                f"batch.context_length is {self.batch.context_length}, more than "
                f"model.max_position_embeddings ({fields['max_position_embeddings']})."
            )
        if "params" in self.model:
            size, tied = parse_size(str(self.model["params"])), fields.get("tie_word_embeddings")
            shape = shape_for(size, fields["vocab_size"], tie_word_embeddings=tied)
            return shape.with_changes(**fields)
        return preset(self.model.get("preset", DEFAULT_PRESET), **fields)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: what was meant, or what there is."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
