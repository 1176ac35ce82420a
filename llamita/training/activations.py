"""Bytes that a micro-batch keeps between the forward and the backward pass: arithmetic alone.

What autograd keeps of a layer, in values a token (C width, Q and K the widths of queries and keys,
I the feed-forward's):

| kept | plain | compiled |
|---|---|---|
| residual stream, before attention and before the feed-forward | 2 C | 2 C |
| each, normalized; and that, weighted, as the products read it | 2 C + 2 C | 2 C |
| rotated queries and keys, values, what attention gives | 2 Q + 2 K | 2 Q + 2 K |
| gate, its SiLU, up, and the product that the last matrix reads | 4 I | 3 I |

The residual stream and what is normalized are float32, the rest is in the run's number format.
`benchmarks/train_memory.py` holds the sums to measured peaks (docs/scaling.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from llamita.config import ModelConfig

FLOAT32 = 4
VALUE_BYTES = {"float32": 4, "bfloat16": 2}
"""Of the products, by `machine.precision`."""

# Logits of a chunk, and its fewest rows: training/cross_entropy.py.
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
    stream = (2 if work.compiled else 4) * hidden
    narrow = 2 * hidden + 2 * queries + 2 * keys + (3 if work.compiled else 4) * inner
    if config.use_qk_norm:
        stream += queries + keys
        narrow += 0 if work.compiled else queries + keys
    kept = work.tokens * (FLOAT32 * stream + values * narrow)
    kept += work.tokens * FLOAT32 * config.num_attention_heads  # the softmax's sums
    if config.residual_dropout:
        # On a CPU the mask is a factor for each value, on a GPU a byte.
        kept += 2 * work.tokens * hidden * (values if work.device == "cpu" else 1)
    return kept + _kept_of_scores(config, work)


def _kept_of_scores(config: ModelConfig, work: Pass) -> int:
    """What attention keeps in the square of the length: mostly nothing."""
    square = work.rows * work.time**2
    values = VALUE_BYTES[work.precision]
    if config.attention_dropout and work.device == "cpu":
        # No kernel there draws: weights, the factors that drop some, and what is left.
        return 3 * square * config.num_attention_heads * values
    if work.has_mask and not (work.device == "cpu" and work.precision == "bfloat16"):
        return square * values  # zeros and minus infinities, made by each layer
    return 0


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
    """Bytes of the matrices' copies in the run's number format, while a pass is under way.

    Autocast keeps them for the backward pass; where layers are compiled or computed again, only
    one layer's are there at a time.
    """
    if work.precision == "float32":
        return 0
    all_of_them = matrices * VALUE_BYTES[work.precision]
    if work.compiled or work.checkpointing:
        return all_of_them // config.num_hidden_layers
    return all_of_them


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
