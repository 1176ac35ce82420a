"""`llamita bench MODEL`: how fast it reads and writes here, and how near that is to the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llamita.cli.options import (
    CompileOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    KVCacheDtypeOption,
    ModelArgument,
    OverrideOption,
    PresetOption,
    TokenizerOption,
)
from llamita.errors import ConfigError
from llamita.evaluation.speed import (
    DEFAULT_BATCH_SIZES,
    DEFAULT_NEW_TOKENS,
    DEFAULT_PROMPT_TOKENS,
    DEFAULT_REPEATS,
)

if TYPE_CHECKING:
    from llamita.inference.lm import LM


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def command(
    model: ModelArgument,
    prompt_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…",
            help="Prompt lengths in tokens. [default: "
            f"{_listed(DEFAULT_PROMPT_TOKENS)}, as far as the context holds them]",
            show_default=False,
        ),
    ] = None,
    batch_sizes: Annotated[
        str, typer.Option(metavar="N,N,…", help="How many texts are generated together.")
    ] = _listed(DEFAULT_BATCH_SIZES),
    new_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens generated after each prompt. [default: "
            f"{DEFAULT_NEW_TOKENS}, if the context allows]",
            show_default=False,
        ),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            help="Measure each so often, after a round of warming up, and take the median; less "
            "often what takes long."
        ),
    ] = DEFAULT_REPEATS,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads; left out, as many as PyTorch takes.")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    kv_cache_dtype: KVCacheDtypeOption = None,
    compile: CompileOption = False,
    override: OverrideOption = None,
    preset: PresetOption = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Measure prefill and decode speed, memory, and the share of the bandwidth limit."""
    lengths = None if prompt_tokens is None else _numbers("--prompt-tokens", prompt_tokens)
    sizes = _numbers("--batch-sizes", batch_sizes)
    _check_threads(threads)

    import llamita

    lm = llamita.load(
        model,
        device=device,
        dtype=dtype,
        override=override,
        preset=preset,
        tokenizer=tokenizer,
        kv_cache_dtype=kv_cache_dtype,
        compile=compile,
    )
    found = _measure(lm, lengths, sizes, new_tokens, repeats, threads) | {"compile": compile}
    if json:
        import json as json_module

        print(json_module.dumps(found))
    else:
        print(_table(found))


def _numbers(option: str, text: str) -> list[int]:
    """The numbers of an option, each once, in the order given."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError(
            f"{option} is {text!r}.", hint=f"Whole numbers with commas between, as {option} 8,64."
        ) from None


def _check_threads(threads: int | None) -> None:
    from llamita.evaluation.machine import available_cores

    if threads is not None and not 1 <= threads <= available_cores():
        raise ConfigError(
            f"--threads is {threads}; it must be from 1 to {available_cores()}, the cores that "
            "this process may use."
        )


def _measure(
    lm: LM,
    lengths: list[int] | None,
    sizes: list[int],
    new_tokens: int | None,
    repeats: int,
    threads: int | None,
) -> dict[str, Any]:
    import torch

    from llamita.cli.progress import progress_bar
    from llamita.evaluation import speed
    from llamita.evaluation.machine import peak_memory, physical_memory, read_bandwidth
    from llamita.inference.stopping import context_length

    if threads is not None:
        torch.set_num_threads(threads)
    if new_tokens is None:
        new_tokens = min(speed.DEFAULT_NEW_TOKENS, max(1, context_length(lm.config) // 2))
    if lengths is None:
        lengths = speed.fitting_lengths(lm.config, new_tokens)
    # What the command line has wrong is told before anything is compiled or allotted.
    speed.check_sizes(lm.config, lengths, sizes, new_tokens, repeats)
    backend = lm.engine.backend
    longest, largest = max(lengths) + new_tokens, max(sizes)
    too_much = ConfigError(
        f"there is not memory enough for {largest} texts of {longest} tokens.",
        hint="Name smaller --batch-sizes or --prompt-tokens.",
    )
    memory = physical_memory() if lm.device.type == "cpu" else None
    # Linux grants what it does not have and ends the process that uses it.
    if memory is not None and largest * backend.slot_bytes(longest) > memory:
        raise too_much
    total = speed.work(lengths, sizes, new_tokens, repeats)
    try:
        with progress_bar("bench", total, "tokens") as bar:
            runs = speed.measure_speed(
                backend,
                prompt_tokens=lengths,
                batch_sizes=sizes,
                new_tokens=new_tokens,
                repeats=repeats,
                progress=bar.advance,
            )
    except (MemoryError, torch.OutOfMemoryError):
        raise too_much from None
    peak = peak_memory(str(lm.device))  # before the buffer whose reading is timed
    thread_count = torch.get_num_threads()
    bandwidth = read_bandwidth(thread_count, device=str(lm.device))
    return speed.summary(runs, lm, bandwidth=bandwidth, peak_memory=peak, threads=thread_count)


def _table(found: dict[str, Any]) -> str:
    peak = found["peak_memory_mb"]
    texts = "one text" if found["batch_size"] == 1 else f"{found['batch_size']} texts"
    headline = f"generating {texts} after {found['prompt_tokens']} tokens"
    rows = [
        ("runs on", f"{found['device']}, {found['threads']} threads"),
        ("weights", f"{found['weight_bytes'] / 1e6:,.1f} MB, {found['dtype']}"),
        ("peak memory", "not told by this system" if peak is None else f"{peak:,.0f} MB"),
        ("memory is read at", f"{found['bandwidth_gb_s']:.1f} GB/s"),
        ("share of that limit", f"{found['roofline_share']:.0%}, {headline}"),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    head = ("prompt", "batch", "prefill tokens/s", "decode tokens/s", "first token")
    table = [head] + [
        (
            f"{run['prompt_tokens']:,}",
            f"{run['batch_size']:,}",
            _rate(run["prefill_tok_s"]),
            _rate(run["decode_tok_s"]),
            f"{run['ttft_s']:.3f} s",
        )
        for run in found["runs"]
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines.append("")
    for row in table:
        lines.append("  ".join(f"{cell:>{size}}" for cell, size in zip(row, widths, strict=True)))
    return "\n".join(lines)


def _rate(tokens_per_second: float) -> str:
    return f"{tokens_per_second:,.{0 if tokens_per_second >= 100 else 1}f}"
