"""Memory of one rank of a run, from the shape of the model and of the work: arithmetic alone.

The largest of a step's moments counts:

- backward: the activations of one micro-batch are all there and gradients begin to come; with
  several micro-batches those of the ones before are whole.
- update: gradients and optimizer state are whole, activations gone; Muon orthogonalizes.

While a save is written, a copy of weights and optimizer state lies in main memory beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal

from llamita.config import ModelConfig
from llamita.training.memory.activations import (
    FLOAT32,
    VALUE_BYTES,
    Pass,
    backward_buffers,
    head_buffers,
    kept_activations,
    narrow_weights,
)
from llamita.training.settings.lora import Lora

Parallel = Literal["ddp", "fsdp"]

# Python with PyTorch and its threads; what compiling leaves besides (the most of what it takes, the
# first step takes over); CUDA's own, and NCCL's.
_PROGRAM = 360_000_000
_COMPILER = 60_000_000
_CUDA_PROGRAM = 3_000_000_000
CUDA_CONTEXT = 700_000_000
_NCCL_BUFFERS = 1_000_000_000
# Parts of what is in use that allocators cannot give out: see `_fragments`.
_CUDA_FRAGMENTS = 0.04
_HEAP_FRAGMENTS, _COMPILED_FRAGMENTS = 0.3, 0.2
_LEAST_FRAGMENTS = 0.15

_AHEAD = 4  # data/prefetch.py
_MUON_BATCH = 1 << 22  # training/steps/muon.py
_MUON_COPIES = 5


@dataclass(frozen=True)
class ParameterCounts:
    """`matrices` of the layers, `tables` of tokens (a tied one once), `vectors`: norms, biases.

    `adapters` are there besides, and then alone `trained`, or with the tables. Frozen weights have
    no gradients and no optimizer state.
    """

    matrices: int
    tables: int
    vectors: int
    largest_matrix: int
    adapters: int = 0
    trains_tables: bool = True

    @classmethod
    def of(cls, config: ModelConfig, lora: Lora | None = None) -> ParameterCounts:
        hidden, inner = config.hidden_size, config.intermediate_size
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        layer = 2 * hidden * (queries + keys) + 3 * hidden * inner
        matrices = config.num_hidden_layers * layer
        tables = config.vocab_size * hidden * (1 if config.tie_word_embeddings else 2)
        vectors = config.count_parameters() - matrices - tables
        counts = cls(matrices, tables, vectors, hidden * max(inner, queries))
        if lora is None:
            return counts
        return replace(counts, adapters=lora.values(config), trains_tables=bool(lora.tokens))

    @property
    def model(self) -> int:
        """All of the model, without adapters."""
        return self.matrices + self.tables + self.vectors

    @property
    def total(self) -> int:
        return self.model + self.adapters

    @property
    def trained(self) -> int:
        """Those that have gradients."""
        if not self.adapters:
            return self.total
        return self.adapters + (self.tables if self.trains_tables else 0)

    def optimizer_values(self, name: str) -> int:
        """Numbers of optimizer state: two a parameter of AdamW's, one a matrix of Muon's."""
        if self.adapters:
            return 2 * self.trained
        if name == "muon":
            return self.matrices + 2 * (self.tables + self.vectors)
        return 2 * self.total


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one rank at the largest moment, by what they are for.

    Attributes:
        parameters, gradients, optimizer: float32; a rank's shard under fsdp.
        activations: what layers keep for the backward pass of one micro-batch.
        logits: a chunk's, and the gradients of the head.
        working: gradients inside one layer, copies in the run's number format, whole layers
            gathered under fsdp, Muon's iteration.
        snapshot: in main memory, of a save that is being written.
        data: batches read ahead, held-out rows, the order of an epoch's rows.
        program: Python, PyTorch and, on an accelerator, its libraries in main memory.
        fragments: free between what is in use, and too small for what is asked for.
        context: on an accelerator: CUDA and NCCL.
        device: "cpu", "cuda" or "mps".
        moment: "backward" or "update".
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    working: int
    snapshot: int
    data: int
    program: int
    fragments: int
    context: int
    device: str
    moment: str

    @property
    def on_device(self) -> int:
        """Bytes of the accelerator; 0 on a CPU."""
        return 0 if self.device != "cuda" else self._computing + self.context

    @property
    def in_ram(self) -> int:
        """Bytes of main memory."""
        computing = 0 if self.device == "cuda" else self._computing
        return self.snapshot + self.data + self.program + computing

    @property
    def parts(self) -> dict[str, int]:
        """The bytes by name, largest first."""
        sizes = {f.name: getattr(self, f.name) for f in fields(self) if f.type == "int"}
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    @property
    def _computing(self) -> int:
        return (
            self.parameters
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.working
            + self.fragments
        )


def rank_memory(
    config: ModelConfig,
    work: Pass,
    optimizer: str,
    *,
    micro_batches: int,
    ranks: int = 1,
    parallel: Parallel = "ddp",
    held_out: int = 0,
    train_tokens: int = 0,
    lora: Lora | None = None,
) -> MemoryEstimate:
    """As `estimate_memory`, of micro-batches like `work`; held_out: tokens to validate on."""
    counts = ParameterCounts.of(config, lora)
    computing = _computing_memory(config, counts, work, optimizer, micro_batches, ranks, parallel)
    if lora is not None:
        # What each adapter reads narrowed to its rank, and, with dropout, thinned out.
        read = lora.rank + (config.hidden_size if lora.dropout else 0)
        kept = work.tokens * VALUE_BYTES[work.precision] * read * len(lora.targets)
        more = config.num_hidden_layers * kept if computing.moment == "backward" else 0
        computing = replace(computing, activations=computing.activations + more)
    shards = ranks if parallel == "fsdp" else 1
    state = counts.total + counts.optimizer_values(optimizer)
    rows = work.rows * (_AHEAD + 3) + held_out // work.time
    computing = replace(computing, snapshot=FLOAT32 * math.ceil(state / shards))
    return replace(
        computing,
        data=rows * work.time * (24 if work.has_mask else 16) + _order(train_tokens, work.time),
        program=_program(work.device, work.compiled),
        fragments=_fragments(counts, computing, work, optimizer),
        context=_context(work.device, ranks),
    )


def _computing_memory(
    config: ModelConfig,
    counts: ParameterCounts,
    work: Pass,
    optimizer: str,
    micro_batches: int,
    ranks: int,
    parallel: Parallel,
) -> MemoryEstimate:
    """The larger of a step's two moments; main memory beside computing is left at 0."""
    shards = ranks if parallel == "fsdp" else 1
    parameters = FLOAT32 * math.ceil(counts.total / shards)
    gradients = FLOAT32 * math.ceil(counts.trained / shards)
    state = FLOAT32 * math.ceil(counts.optimizer_values(optimizer) / shards)
    if shards > 1:
        copies = _gathered(config, work, counts)
    else:
        copies = narrow_weights(config, work, counts.matrices)
    # DistributedDataParallel's buckets are the gradients, and always there.
    keeps_gradients = micro_batches > 1 or (ranks > 1 and parallel == "ddp")
    backward = MemoryEstimate(
        parameters=parameters,
        gradients=gradients if keeps_gradients else 0,
        optimizer=state,
        activations=kept_activations(config, work),
        logits=head_buffers(config, work),
        working=backward_buffers(config, work) + copies,
        snapshot=0,
        data=0,
        program=0,
        fragments=0,
        context=0,
        device=work.device,
        moment="backward",
    )
    update = replace(
        backward,
        gradients=gradients,
        activations=0,
        logits=0,
        working=_update_buffers(counts, optimizer),
        moment="update",
    )
    return max(backward, update, key=lambda moment: moment._computing)


def _gathered(config: ModelConfig, work: Pass, counts: ParameterCounts) -> int:
    """Bytes of whole parameters and gradients under fsdp: two layers, and the tables.

    A layer and the next one are there in the run's number format, as are a layer's gradients; those
    of another are summed in float32. The tables stay whole from the forward to the backward pass,
    as the loss reads the head.
    """
    layer = counts.matrices // config.num_hidden_layers
    values = VALUE_BYTES[work.precision]
    return (3 * values + FLOAT32) * layer + FLOAT32 * 2 * counts.tables


def _update_buffers(counts: ParameterCounts, optimizer: str) -> int:
    """Muon's iteration over as many matrices as it takes at once; AdamW works in place."""
    if optimizer != "muon":
        return 0
    return FLOAT32 * _MUON_COPIES * max(counts.largest_matrix, _MUON_BATCH)


def _order(train_tokens: int, time: int) -> int:
    """The permutation of an epoch's rows, int64, and at its end the next one's beside it."""
    return 2 * 8 * (train_tokens // time)


def _program(device: str, compiled: bool) -> int:
    if device == "cuda":
        return _CUDA_PROGRAM
    return _PROGRAM + (_COMPILER if compiled else 0)


def _context(device: str, ranks: int) -> int:
    if device != "cuda":
        return 0
    return CUDA_CONTEXT + (_NCCL_BUFFERS if ranks > 1 else 0)


def _fragments(counts: ParameterCounts, estimate: MemoryEstimate, work: Pass, name: str) -> int:
    """What an allocator holds and cannot give out, with the optimizer of that name.

    In glibc's heap the blocks of a pass lie between longer lived ones and leave gaps; PyTorch's
    allocator on a GPU leaves fewer. The shares are fitted to the measured peaks of docs/scaling.md.
    """
    if work.device == "cuda":
        return int(_CUDA_FRAGMENTS * estimate._computing)
    share = _COMPILED_FRAGMENTS if work.compiled else _HEAP_FRAGMENTS
    of_a_pass = int(share * estimate.activations) + _update_buffers(counts, name)
    return max(of_a_pass, int(_LEAST_FRAGMENTS * (estimate._computing + estimate.snapshot)))
