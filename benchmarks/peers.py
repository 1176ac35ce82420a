"""The two systems that `generate.py` measures llamita against, at their fastest settings.

transformers runs in this process. llama.cpp runs in one of its own, for its threads wait by
spinning: `python benchmarks/peers.py` with a request on stdin, the answer in the file it names. It
goes through llama-cpp-python where that is installed (it is built for the very CPU), else through
xllamacpp.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from contest import WARM_UPS


class Transformers:
    """`transformers`' generate on a model directory, greedy and without an end."""

    def __init__(self, directory: Path, dtype: str) -> None:
        import torch

        transformers: Any = importlib.import_module("transformers")
        transformers.utils.logging.set_verbosity_error()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=getattr(torch, dtype)
        ).eval()
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0
        # By itself it compiles on accelerators alone.
        self._compiling = transformers.CompileConfig(mode="default")
        self._compiling._compile_all_devices = True
        self._warm_ups = {False: WARM_UPS, True: WARM_UPS}

    def decode_rate(self, prompt: list[int], new_tokens: int, compiled: bool) -> float:
        """Tokens a second after the first. compiled: a static cache and `torch.compile`."""
        while self._warm_ups[compiled]:
            self._warm_ups[compiled] -= 1
            self.decode_rate(prompt, new_tokens, compiled)
        import torch

        clock = _Clock()
        ids = torch.tensor([prompt])
        static = {"cache_implementation": "static", "compile_config": self._compiling}
        with torch.inference_mode():
            self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=new_tokens + 1,
                streamer=clock,
                **(static if compiled else {}),
            )
        [_, first, *_, last] = clock.times  # the prompt comes first
        return new_tokens / (last - first)


class _Clock:
    """A streamer that notes when each token came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def llama_cpp_rates(
    path: Path, prompts: list[list[int]], new_tokens: int, threads: int, flash: bool
) -> dict[str, Any]:
    """Prefill and decode tokens a second of a GGUF for each prompt but those that warm up.

    Each call is a process of its own, so the first `WARM_UPS` prompts warm it up.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        request = {
            "path": str(path),
            "prompts": prompts,
            "new_tokens": new_tokens,
            "threads": threads,
            "flash": flash,
            "answer": str(answer),
        }
        done = subprocess.run(
            [sys.executable, __file__],
            input=json.dumps(request),
            text=True,
            errors="replace",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if done.returncode or not answer.exists():
            raise SystemExit(
                f"{done.stderr[-4000:]}\nllama.cpp failed on {path.name} (exit code "
                f"{done.returncode}); what it said last stands above."
            )
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def _through_llama_cpp_python(request: dict[str, Any]) -> dict[str, Any]:
    llama_cpp: Any = importlib.import_module("llama_cpp")
    context = max(map(len, request["prompts"])) + request["new_tokens"] + 1
    model = llama_cpp.Llama(
        request["path"],
        n_ctx=context,
        n_batch=512,
        n_ubatch=512,
        n_threads=request["threads"],
        n_threads_batch=request["threads"],
        flash_attn=request["flash"],
        verbose=False,
    )
    prefill, decode = [], []
    for prompt in request["prompts"]:
        model.reset()
        start = time.perf_counter()
        model.eval(prompt)
        read = time.perf_counter()
        for _ in range(request["new_tokens"]):
            model.eval([model.sample(temp=0.0)])
        prefill.append(len(prompt) / (read - start))
        decode.append(request["new_tokens"] / (time.perf_counter() - read))
    return {
        "through": f"llama-cpp-python {llama_cpp.__version__}",
        "prefill": prefill[WARM_UPS:],
        "decode": decode[WARM_UPS:],
    }


def _through_xllamacpp(request: dict[str, Any]) -> dict[str, Any]:
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = request["path"]
    params.n_ctx = max(map(len, request["prompts"])) + request["new_tokens"] + 1
    params.n_batch = params.n_ubatch = 512
    params.n_parallel = 1
    params.fit_params = False
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = request["threads"]
    flash = "ENABLED" if request["flash"] else "DISABLED"
    params.flash_attn_type = getattr(
        xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}"
    )
    server = xllamacpp.Server(params)
    prefill, decode = [], []
    for prompt in request["prompts"]:
        body = {
            "prompt": prompt,
            "n_predict": request["new_tokens"] + 1,
            "temperature": 0.0,
            "cache_prompt": False,
            "ignore_eos": True,
        }
        asked = urllib.request.Request(
            server.listening_address + "/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        # No proxy stands between this process and itself.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(asked, timeout=600) as reply:
            timings = json.load(reply)["timings"]
        prefill.append(timings["prompt_per_second"])
        decode.append(timings["predicted_per_second"])
    return {
        "through": f"xllamacpp {xllamacpp.__version__}",
        "prefill": prefill[WARM_UPS:],
        "decode": decode[WARM_UPS:],
    }


def main() -> None:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    if importlib.util.find_spec("llama_cpp") is not None:
        answer = _through_llama_cpp_python(request)
    else:
        answer = _through_xllamacpp(request)
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    os._exit(0)  # its server's threads would hold the process


if __name__ == "__main__":
    main()
