"""llama.cpp as a peer: the log-probabilities it gives at every position of given tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_PLAIN = 100
"""A token that is text by itself in the vocabularies of the tests, and in SmolLM2's."""


class LlamaCpp:
    """A GGUF file in xllamacpp, in float32 throughout (its caches and its attention too)."""

    def __init__(self, path: Path, context: int = 256, threads: int = 1) -> None:
        xllamacpp = pytest.importorskip("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.warmup = False
        params.verbosity = -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        off = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.flash_attn_type = off
        params.fit_params = False
        self.server = xllamacpp.Server(params)

    def next_tokens(self, ids: Sequence[int], top: int) -> dict[int, float]:
        """The `top` likeliest next tokens after `ids` and their log-probabilities.

        A token that is half a character would come without them, so it is made to choose an
        ordinary one; the probabilities are those before that.
        """
        answer = self._complete(ids, 1, top, logit_bias=[[_PLAIN, 1e4]])
        [position] = answer["choices"][0]["logprobs"]["content"]
        return {entry["id"]: entry["logprob"] for entry in position["top_logprobs"]}

    def greedy(self, ids: Sequence[int], count: int) -> list[int]:
        """The `count` tokens it chooses after `ids`."""
        content = self._complete(ids, count, 1)["choices"][0]["logprobs"]["content"]
        return [position["id"] for position in content]

    def _complete(self, ids: Sequence[int], count: int, top: int, **more: Any) -> Any:
        # The prefix that the last call had is still in the slot's cache: one new token each.
        answer = self.server.handle_completions(
            {
                "prompt": [list(ids)],
                "n_predict": count,
                "n_probs": top,
                "temperature": 0,
                "cache_prompt": True,
                "ignore_eos": True,
                **more,
            }
        )
        assert answer.get("choices"), answer
        assert answer["choices"][0]["logprobs"], answer
        return answer
