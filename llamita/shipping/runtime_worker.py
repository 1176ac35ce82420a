"""A target's real runtime in a process of its own: `python -m llamita.shipping.runtime_worker`.

What llama.cpp finds wrong it ends with `abort()`, so it must not share a process with whoever
wants to report it. The request is a JSON object on stdin, the answer one at the path it names.
Nothing here judges; `runtimes` does.
"""

from __future__ import annotations

import importlib
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOP_TOKENS = 10


def run_transformers(request: dict[str, Any]) -> dict[str, Any]:
    """Logits of the rows of ids, ids of the texts, the conversation as rendered."""
    import numpy as np
    import torch

    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    directory = request["path"]
    answer: dict[str, Any] = {"version": transformers.__version__}
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True
    )
    answer["not_loaded"] = sorted(
        str(name)
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for name in loading[key]
    )
    with torch.no_grad():
        logits = model.eval()(torch.tensor(request["rows"])).logits.float().numpy()
    np.save(request["logits"], logits)
    if request["tokenizes"]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        answer["ids"] = [
            [
                list(tokenizer(text, add_special_tokens=special)["input_ids"])
                for special in (False, True)
            ]
            for text in request["texts"]
        ]
        if request["messages"]:
            answer["chat"] = tokenizer.apply_chat_template(
                request["messages"], tokenize=False, add_generation_prompt=True
            )
    return answer


def run_llama_cpp(request: dict[str, Any]) -> dict[str, Any]:
    """The best next tokens after each beginning of the first row, ids of the texts, the chat."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    [row, *_] = request["rows"]
    params = xllamacpp.CommonParams()
    params.model.path = request["path"]
    params.n_ctx = params.n_batch = params.n_ubatch = max(256, len(row) + 1)
    params.n_parallel = 1
    params.warmup = False
    params.fit_params = False
    params.no_extra_bufts = True  # no second, rearranged copy of the weights
    params.n_gpu_layers = 0
    params.use_jinja = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = request["threads"]
    # A cache of 32-bit numbers: what is judged is the model, not a rounded cache.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    address = server.listening_address
    answer: dict[str, Any] = {"version": xllamacpp.__version__, "positions": []}
    # The server holds at most the model's own context, and wants room for one token more.
    context = _ask(address, "/props")["default_generation_settings"]["n_ctx"]
    for end in range(1, min(len(row), context - 1) + 1):
        found = _ask(
            address,
            "/completion",
            {
                "prompt": row[:end],
                "n_predict": 1,
                "n_probs": TOP_TOKENS,
                "temperature": 0.0,
                "cache_prompt": True,
                # Half a character or an end of text would come without probabilities, which are
                # those before any bias.
                "logit_bias": [[request["plain_token"], 1e4]],
            },
        )
        [position] = found["completion_probabilities"][:1]
        best = position.get("top_logprobs") or position["top_probs"]
        answer["positions"].append([[token["id"], token["logprob"]] for token in best])
    answer["ids"] = [
        [
            _ask(
                address,
                "/tokenize",
                {"content": text, "add_special": special, "parse_special": False},
            )["tokens"]
            for special in (False, True)
        ]
        for text in request["texts"]
    ]
    if request["messages"]:
        answer["chat"] = _ask(address, "/apply-template", {"messages": request["messages"]})[
            "prompt"
        ]
    return answer


def _ask(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address + path, data, headers)
    # No proxy stands between this process and itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=600) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{path} answered {error.read().decode(errors='replace')}") from error


def main() -> None:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    run = {"transformers": run_transformers, "llama.cpp": run_llama_cpp}[request["runtime"]]
    try:
        answer = run(request)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
