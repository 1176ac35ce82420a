"""Bytes that a micro-batch keeps between the forward and the backward pass: arithmetic alone.

What autograd keeps of a layer, in bytes a token (C width, Q and K the widths of queries and keys,
I the feed-forward's, b bytes of the run's number format):

| kept | plain | compiled |
|---|---|---|
| residual stream, before attention | 4 C | 4 C |
| before the feed-forward; compiled: what attention added | 4 C | b C |
| each, normalized | 2 x 4 C | |
| that, weighted, as the products read it: in bfloat16 a copy for each product | 2 (5) b C | 2 b C |
| rotated queries and keys, values, what attention gives | b (2 Q + 2 K) | b (2 Q + 2 K) |
| gate, its SiLU (compiled: not), up, their product | 4 b I | 3 b I |

A test holds this to what autograd keeps, `benchmarks/train_memory.py` the sums to measured peaks
(docs/scaling.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from llamita.config import ModelConfig

FLOAT32 = 4
VALUE_BYTES = {"float32": 4, "bfloat16": 2}
"""Of the products, by `machine.precision`."""

# Logits of a chunk, and its fewest rows: training/steps/cross_entropy.py.
_CHUNK_VALUES = {"cpu": 1 << 22, "cuda": 1 << 26, "mps": 1 << 26}
_FEWEST_ROWS = 128
_QUERIES_OF_A_BLOCK = 128  # model/block_attention.py


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of one rank.

    rows, time: of the micro-batch, [rows, time] tokens. has_mask: attention is given who sees whom
    (documents are fenced, or a window slides). checkpointing: layers are computed again in the
    backward pass.
    """

    rows: int
    time: int
    precision: str
    device: str = "cpu"
    compiled: bool = False
    checkpointing: bool = False
    has_mask: bool = False

    @property
    def tokens(self) -> int:
        return self.rows * self.time


def kept_of_layer(config: ModelConfig, work: Pass) -> int:
    """Bytes that one layer keeps for its backward pass, computed in the plain order."""
    values = VALUE_BYTES[work.precision]
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    if work.compiled:
        kept = FLOAT32 * hidden + values * (3 * hidden + 3 * inner)
    else:
        copies = 2 if work.precision == "float32" else 5
        kept = 4 * FLOAT32 * hidden + values * (copies * hidden + 4 * inner)
    kept += values * (2 * queries + 2 * keys)
    if config.use_qk_norm:
        kept += (values if work.compiled else values + FLOAT32) * (queries + keys)
    kept += FLOAT32 * config.num_attention_heads  # the softmax's sums
    if config.residual_dropout:
        # Uncompiled on a CPU the mask is a factor for each value, else a byte.
        kept += 2 * hidden * (values if work.device == "cpu" and not work.compiled else 1)
    return work.tokens * kept + _kept_of_attention(config, work)


def _kept_of_attention(config: ModelConfig, work: Pass) -> int:
    """What attention keeps besides, mostly in the square of the length: on a GPU nothing."""
    square = work.rows * work.time**2
    values, heads = VALUE_BYTES[work.precision], config.num_attention_heads
    if config.attention_dropout and work.device == "cpu":
        # No kernel there draws: weights and what is left of them, and the factors between.
        return square * heads * (2 * values + 1 if work.compiled else 12)
    if work.device != "cpu" or work.precision == "float32":
        return square * values if work.has_mask else 0  # zeros and minus infinities, by each layer
    # Blocks of queries: the compiler keeps their weights, which the formula would compute again.
    queries = heads * config.head_dim
    copies = work.tokens * queries * values
    if not work.compiled:
        return copies
    keys = config.num_key_value_heads * config.head_dim
    blocks = square // 2 + work.rows * work.time * min(work.time, _QUERIES_OF_A_BLOCK) // 2
    masks = 2 * square if work.has_mask else 0
    return copies + work.tokens * keys // 2 * values + heads * blocks * values + masks


def kept_activations(config: ModelConfig, work: Pass) -> int:
    """Bytes that all layers keep at the end of the forward pass.

    With checkpointing each keeps what it was given, and one at a time all of the above.
    """
    given = work.tokens * config.hidden_size * FLOAT32
    layer = kept_of_layer(config, work)
    if work.checkpointing:
        layers = config.num_hidden_layers * given + layer
    else:
        layers = config.num_hidden_layers * layer
    ends = 3 * given  # what the last layer gives, and its norm, twice
    ids = work.tokens * (8 + 8 + (8 if work.has_mask else 0))
    angles = 2 * work.tokens * config.head_dim * FLOAT32
    mask = work.rows * work.time**2 if work.has_mask else 0
    return layers + ends + ids + angles + mask


def narrow_weights(config: ModelConfig, work: Pass, matrices: int) -> int:
    """Bytes of the matrices' copies in the run's number format, which the backward pass reads.

    Layers keep them, compiled or not, but where they are gathered in that format: training/
    sharding.py. Where they are compiled and computed again, only one layer's are there at a time.
    """
    if work.precision == "float32":
        return 0
    copies = matrices * VALUE_BYTES[work.precision]
    if work.compiled and work.checkpointing:
        return copies // config.num_hidden_layers
    return copies


def backward_buffers(config: ModelConfig, work: Pass) -> int:
    """Bytes of the gradients inside one layer while its backward pass runs."""
    values = VALUE_BYTES[work.precision]
    queries = config.num_attention_heads * config.head_dim
    feed_forward = values * 3 * config.intermediate_size + FLOAT32 * 2 * config.hidden_size
    attention = values * (2 * queries + config.hidden_size) + FLOAT32 * 2 * config.hidden_size
    if work.device == "cpu" and work.precision == "bfloat16":
        # Scores of one block of queries, in float32, three times.
        block = 3 * FLOAT32 * config.num_attention_heads * min(work.time, _QUERIES_OF_A_BLOCK)
        attention += block
    return work.tokens * max(feed_forward, attention)


def head_buffers(config: ModelConfig, work: Pass) -> int:
    """Bytes that the head and its loss hold: a chunk's logits, and the gradients of both sides.

    The logits of a chunk, their exponentials and gradients; the gradient by the hidden states; the
    table's gradient in float32, and what is added to it.
    """
    values = VALUE_BYTES[work.precision]
    table = config.vocab_size * config.hidden_size
    wanted = max(_FEWEST_ROWS, _CHUNK_VALUES.get(work.device, 1 << 26) // config.vocab_size)
    rows = min(work.tokens, wanted)
    copies = 2 * values + (1 if work.compiled else 3) * FLOAT32
    logits = rows * config.vocab_size * copies
    narrow = table * values if work.precision != "float32" else 0
    return logits + narrow + 2 * table * FLOAT32 + 2 * work.tokens * config.hidden_size * FLOAT32
