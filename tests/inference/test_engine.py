"""The engine against a backend that finds out whoever reads the wrong slot."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import GenerationError
from llamita.inference.engine import Engine
from tests.inference.hash_backend import HashBackend, request, run


def alone(prompt, settings, **backend):
    tokens, last = run(Engine(HashBackend(**backend)), [request(prompt, **settings)])
    return tokens[0], last[0].finish_reason


PROMPTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)
SETTINGS = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(0, 25),
        "temperature": st.sampled_from([0.0, 1.0]),
        "seed": st.integers(0, 3),
        "top_k": st.sampled_from([0, 5]),
        "repetition_penalty": st.sampled_from([1.0, 1.5]),
        "speculative": st.sampled_from([0, 4]),
    }
)


@given(
    requests=st.lists(st.tuples(PROMPTS, SETTINGS, st.integers(0, 20)), min_size=1, max_size=7),
    slots=st.integers(1, 4),
    chunk=st.integers(1, 9),
    window=st.sampled_from([None, 6]),
)
def test_requests_that_come_at_any_time_get_what_they_get_alone(requests, slots, chunk, window):
    backend = HashBackend(window=window)
    engine = Engine(backend, prefill_chunk=chunk, max_slots=slots)
    events: list[list] = [[] for _ in requests]
    pending = sorted(range(len(requests)), key=lambda row: requests[row][2])
    for step in range(2000):
        while pending and requests[pending[0]][2] <= step:
            row = pending.pop(0)
            prompt, settings, _ = requests[row]
            engine.add(request(prompt, row, **settings), events[row].append)
        if not engine.step() and not pending:
            break
    assert not engine.has_work
    assert backend.slots <= slots
    for (prompt, settings, _), seen in zip(requests, events, strict=True):
        tokens = [event.token_id for event in seen if event.token_id is not None]
        expected, reason = alone(prompt, {**settings, "speculative": 0}, window=window)
        assert (tokens, seen[-1].finish_reason) == (expected, reason)
        assert [event.is_last for event in seen].count(True) == 1
        if settings["temperature"] == 0 and settings["repetition_penalty"] == 1:
            assert tokens == HashBackend(window=window).greedy(prompt, len(tokens))


def test_a_long_prompt_is_read_in_chunks_while_others_go_on():
    backend = HashBackend(context=512)
    engine = Engine(backend, prefill_chunk=10)
    seen: list[list] = [[], []]
    engine.add(request([1, 2, 3], max_tokens=100), seen[0].append)
    engine.step()
    engine.add(request(list(range(40)) * 5, row=1, max_tokens=3), seen[1].append)
    while not seen[1]:
        before = len(seen[0])
        engine.step()
        assert len(seen[0]) == before + 1
    chunks = [part[2] for kind, parts in backend.passes if kind == "prefill" for part in parts]
    assert max(chunks) <= 10
    assert sum(chunks) == 203


def test_short_prompts_share_one_pass():
    backend = HashBackend()
    run(Engine(backend), [request([i, i + 1, i + 2], i, max_tokens=1) for i in range(8)])
    assert [len(parts) for _, parts in backend.passes] == [8]


def test_a_shared_beginning_is_read_once_and_copied_to_the_rest():
    backend = HashBackend(context=512)
    system = [number * number % 37 for number in range(200)]
    prompts = [[*system, 7, 8, 9], [*system, 3], [*system, 7, 1]]
    tokens, _ = run(Engine(backend), [request(p, i, max_tokens=5) for i, p in enumerate(prompts)])
    read = sum(part[2] for kind, parts in backend.passes if kind == "prefill" for part in parts)
    assert read < 210
    assert len(backend.copies) == 2
    assert list(tokens.values()) == [HashBackend().greedy(p, 5) for p in prompts]


def test_a_conversation_that_goes_on_reads_only_what_is_new():
    backend = HashBackend(context=512)
    engine = Engine(backend)
    prompt = [5] * 50
    tokens, _ = run(engine, [request(prompt, max_tokens=10)])
    backend.passes.clear()
    longer = [*prompt, *tokens[0], 1, 2]
    again, _ = run(engine, [request(longer, max_tokens=3)])
    [(_, start, length)] = backend.passes[0][1]
    assert (start, length) == (59, 3)  # the last token drawn was never read
    assert again[0] == backend.greedy(longer, 3)
    assert not backend.copies


def test_another_conversation_does_not_cost_the_first_its_cache():
    backend = HashBackend(context=512)
    engine = Engine(backend)
    system = [1, 2, 3, 4] * 10
    first = [*system, *[5] * 100]
    run(engine, [request(first, max_tokens=2), request([9], 1, max_tokens=2)])
    run(engine, [request([*system, 7], max_tokens=2)])
    backend.passes.clear()
    run(engine, [request([*first, 8], max_tokens=1)])
    assert backend.passes[0][1][0][1] >= 140


def test_a_backend_whose_keys_depend_on_the_row_shares_nothing():
    backend = HashBackend(context=512, shares=False)
    system = [1, 2, 3, 4] * 20
    run(Engine(backend), [request([*system, i], i, max_tokens=2) for i in range(3)])
    assert sum(part[2] for _, parts in backend.passes for part in parts) == 3 * 82
    assert not backend.copies


def test_changed_weights_make_what_the_slots_hold_worthless():
    backend = HashBackend()
    engine = Engine(backend)
    run(engine, [request([1, 2, 3, 4], max_tokens=1)])
    backend.weights_version = 1
    backend.passes.clear()
    run(engine, [request([1, 2, 3, 4], max_tokens=1)])
    assert backend.passes[0][1][0][1:] == (0, 4)


@pytest.mark.parametrize("bos", [None, 3])
def test_sliding_drops_the_oldest_half_and_goes_on(bos):
    backend = HashBackend(context=16)
    object.__setattr__(backend.config, "bos_token_id", bos)
    prompt = [3, 2, 1, 0, 5]
    tokens, last = run(Engine(backend), [request(prompt, max_tokens=40, overflow="slide")])
    held, expected = list(prompt), []
    for _ in range(40):
        token = backend.greedy(held, 1)[0]
        expected.append(token)
        held.append(token)
        if len(held) > 16:
            held = held[-8:] if bos is None else [3, *held[-7:]]
    assert tokens[0] == expected
    assert last[0].finish_reason == "length"
    assert last[0].dropped == 5 + 40 - len(held)


def test_sliding_cuts_a_prompt_that_is_too_long():
    backend = HashBackend(context=16)
    prompt = [i % 7 for i in range(50)]
    tokens, last = run(Engine(backend), [request(prompt, max_tokens=1, overflow="slide")])
    assert tokens[0] == backend.greedy(prompt[-15:], 1)
    assert last[0].dropped == 35


def test_overflow_error_refuses_what_does_not_fit_and_says_when_it_is_full():
    engine = Engine(HashBackend(context=16))
    with pytest.raises(GenerationError, match=r"10 tokens.*7.*16"):
        run(engine, [request([1] * 10, max_tokens=7, overflow="error")])
    tokens, _ = run(engine, [request([1] * 10, max_tokens=6, overflow="error")])
    assert len(tokens[0]) == 6
    with pytest.raises(GenerationError, match="filled"):
        run(engine, [request([1] * 10, max_tokens=None, overflow="error")])
    with pytest.raises(GenerationError, match=r"16 tokens.*None.*16"):
        run(engine, [request([1] * 16, max_tokens=None, overflow="error")])


def test_sliding_needs_an_end():
    with pytest.raises(GenerationError, match="max_tokens"):
        run(Engine(HashBackend()), [request([1], max_tokens=None, overflow="slide")])


def test_a_long_conversation_keeps_its_place_beside_a_short_request():
    backend = HashBackend(context=2048)
    engine = Engine(backend)
    talk = [i % 9 for i in range(700)]
    run(engine, [request(talk, max_tokens=2)])
    run(engine, [request([1, 1], max_tokens=2)])
    backend.passes.clear()
    run(engine, [request([*talk, 4], max_tokens=1)])
    assert backend.passes[0][1][0][1] >= 700


def test_the_engine_needs_no_torch():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from llamita.inference.engine import Engine\n"
        "from tests.inference.hash_backend import HashBackend, request, run\n"
        "print(run(Engine(HashBackend()), [request([1, 2], max_tokens=3, temperature=1.0, seed=1,"
        " top_k=5, repetition_penalty=1.2, speculative=4, logprobs=2, stop=['x'])])[0])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("{0: [")


def test_a_short_prompt_need_not_wait_for_all_of_a_long_one():
    backend = HashBackend(context=2048, max_segment=2048)
    engine = Engine(backend, prefill_chunk=10)
    seen: list = []
    engine.add(request([5] * 1500, max_tokens=2), seen.append)
    engine.step()
    engine.add(request([6, 7, 8], 1, max_tokens=2), seen.append)
    engine.step()
    assert [event.row for event in seen] == [1]


def test_log_probabilities_come_with_each_token():
    backend = HashBackend()
    [first, *_] = Engine(backend).run([request([1, 2], max_tokens=2, logprobs=3)])
    assert first.logprob.token_id == first.token_id == first.logprob.top[0][0]
    assert len(first.logprob.top) == 3
    assert first.logprob.logprob == first.logprob.top[0][1] < 0
