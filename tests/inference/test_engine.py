"""The engine against a backend that finds out whoever reads the wrong slot."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import GenerationError
from llamita.inference.engine import Engine
from llamita.inference.params import SamplingParams
from llamita.inference.request import Request
from tests.inference.hash_backend import HashBackend

GREEDY = {"temperature": 0.0}


def request(prompt, row=0, stops=(), **settings):
    return Request(prompt, SamplingParams(**{**GREEDY, **settings}), frozenset(stops), row)


def run(engine, requests):
    """Token ids and the last event of each row."""
    tokens, last = {r.row: [] for r in requests}, {}
    for event in engine.run(requests):
        if event.token_id is not None:
            tokens[event.row].append(event.token_id)
        if event.is_last:
            last[event.row] = event
    assert set(last) == set(tokens)
    return tokens, last


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


def test_a_cancelled_request_frees_its_slot_at_once_and_says_no_more():
    engine = Engine(HashBackend(), max_slots=1)
    first: list = []
    second: list = []
    request_id = engine.add(request([1], max_tokens=60), first.append)
    engine.add(request([2], 1, max_tokens=2), second.append)
    engine.step()
    assert not second
    engine.cancel(request_id)
    said = len(first)
    while engine.step():
        pass
    assert len(first) == said
    assert second[-1].finish_reason == "length"
    engine.cancel(request_id)
    engine.cancel(12345)


def test_leaving_an_iterator_cancels_its_requests():
    engine = Engine(HashBackend())
    events = engine.run([request([1], max_tokens=60), request([2], 1, max_tokens=60)])
    next(events)
    events.close()
    assert not engine.has_work


def test_two_iterators_taken_in_turns_are_served_together():
    engine = Engine(HashBackend())
    first = engine.run([request([1, 2], max_tokens=20)])
    second = engine.run([request([3, 4], max_tokens=20)])
    pairs = [(a.token_id, b.token_id) for a, b in zip(first, second, strict=True)]
    assert [a for a, _ in pairs] == HashBackend().greedy([1, 2], 20)
    assert [b for _, b in pairs] == HashBackend().greedy([3, 4], 20)


def test_threads_share_one_engine():
    engine = Engine(HashBackend(context=512))
    results: dict[int, list[int]] = {}

    def work(number):
        tokens, _ = run(engine, [request([number, 1], max_tokens=50)])
        results[number] = tokens[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {n: HashBackend().greedy([n, 1], 50) for n in range(6)}


def test_a_row_that_goes_wrong_does_not_take_the_others_along():
    backend = HashBackend()
    engine = Engine(backend)
    plain = backend.logits
    backend.logits = lambda tokens: plain(tokens) * (float("nan") if tokens[0] == 9 else 1.0)
    good: list = []
    bad: list = []
    engine.add(request([9, 1], max_tokens=5), bad.append)
    engine.add(request([1, 2], 1, max_tokens=5), good.append)
    while engine.step():
        pass
    assert [event.token_id for event in good] == HashBackend().greedy([1, 2], 5)
    assert "NaN" in str(bad[-1].error)
    assert len(bad) == 1
    with pytest.raises(GenerationError, match="NaN"):
        run(engine, [request([9, 1])])


def test_a_pass_that_breaks_off_ends_all_and_leaves_a_usable_engine():
    backend = HashBackend()
    engine = Engine(backend)
    other: list = []
    engine.add(request([1, 2, 3], max_tokens=50), other.append)
    engine.step()
    decode = backend.decode
    backend.decode = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(engine, [request([4, 5])])
    assert other[-1].error is not None
    backend.decode = decode
    tokens, _ = run(engine, [request([1, 2, 3], max_tokens=5)])
    assert tokens[0] == HashBackend().greedy([1, 2, 3], 5)


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


def test_the_cache_stays_within_its_budget_and_one_row_always_fits():
    sizes = []
    for budget in (2000, 700, 1):
        backend = HashBackend(context=512)
        engine = Engine(backend, cache_bytes=budget)
        run(engine, [request([i], i, max_tokens=200) for i in range(5)])
        sizes.append((backend.slots, backend.capacity))
    assert sizes == [(5, 256), (2, 256), (1, 256)]


def test_slots_are_given_up_for_a_long_row_and_come_back_for_short_ones():
    backend = HashBackend(context=2048)
    engine = Engine(backend, cache_bytes=2048)
    short = [request([i], i, max_tokens=20) for i in range(8)]
    long = request([5, 6], 8, max_tokens=2000)
    expected = HashBackend(context=2048).greedy([5, 6], 2000)
    tokens, _ = run(engine, [*short, long])
    assert (backend.slots, backend.capacity) == (1, 2048)
    assert tokens[8] == expected
    again, _ = run(engine, short)
    assert (backend.slots, backend.capacity) == (8, 256)
    assert again == {row: tokens[row] for row in range(8)}


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
        "from tests.inference.test_engine import *\n"
        "print(run(Engine(HashBackend()), [request([1, 2], max_tokens=3, temperature=1.0, seed=1,"
        " top_k=5, repetition_penalty=1.2, speculative=4, logprobs=2, stop=['x'])])[0])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("{0: [")


def test_short_rows_get_their_slots_back_while_others_are_under_way():
    backend = HashBackend(context=2048)
    engine = Engine(backend, cache_bytes=4096)
    events: list = []

    def add(row, count):
        engine.add(request([row % 40, 2], row, max_tokens=count), events.append)

    add(0, 40)
    add(1, 2000)
    for row in range(2, 10):
        add(row, 30)
    while not any(event.row == 1 and event.is_last for event in events):
        engine.step()
        assert backend.slots * backend.capacity <= 4096
    for row in range(10, 30):
        add(row, 30)
        engine.step()
    assert (backend.slots, backend.capacity) == (16, 256)
    while engine.step():
        pass
    for row in range(30):
        tokens = [event.token_id for event in events if event.row == row]
        assert tokens == HashBackend(context=2048).greedy([row % 40, 2], len(tokens))


def test_memory_that_is_not_there_ends_the_row_that_asked_for_it_alone():
    backend = HashBackend(context=2048)
    resize = backend.resize

    def refuse(slots, capacity):
        if capacity > 256:
            raise MemoryError("no more")
        resize(slots, capacity)

    backend.resize = refuse
    engine = Engine(backend)
    good: list = []
    bad: list = []
    engine.add(request([1], max_tokens=1500), bad.append)
    engine.add(request([2], 1, max_tokens=5), good.append)
    while engine.step():
        pass
    assert "1501 tokens: no more" in str(bad[0].error)
    assert [event.token_id for event in good] == HashBackend().greedy([2], 5)


def test_the_memory_of_the_cache_can_be_given_back():
    backend = HashBackend()
    engine = Engine(backend)
    before, _ = run(engine, [request([1, 2, 3], max_tokens=4)])
    engine.free()
    assert backend.slots == 0
    assert run(engine, [request([1, 2, 3], max_tokens=4)])[0] == before


@pytest.mark.parametrize("prompt", [[], [1, 40], [-1]])
def test_a_prompt_that_cannot_be_read_is_refused_before_it_reaches_the_others(prompt):
    engine = Engine(HashBackend())
    with pytest.raises(GenerationError, match="prompt"):
        engine.add(request(prompt), print)
    assert not engine.has_work


def test_a_sink_that_raises_loses_its_own_row_alone(caplog):
    backend = HashBackend()
    engine = Engine(backend)
    others: list[list] = [[], []]
    engine.add(request([1], max_tokens=9), others[0].append)
    engine.add(request([2], 1, max_tokens=9), lambda event: 1 / 0)
    engine.add(request([3], 2, max_tokens=9), others[1].append)
    while engine.step():
        pass
    assert "ZeroDivisionError" in caplog.text
    assert [[event.token_id for event in seen] for seen in others] == [
        HashBackend().greedy([token], 9) for token in (1, 3)
    ]
    assert not engine.has_work


def test_a_row_cancelled_within_a_step_says_nothing_more():
    engine = Engine(HashBackend(vocab_size=3))
    seen: dict[int, list] = {0: [], 1: []}
    ids: list[int] = []

    def cancel_both(event):
        seen[event.row].append(event)
        if len(seen[0]) == 5:
            for request_id in ids:
                engine.cancel(request_id)

    for row in (0, 1):
        prompt = [1, 2, 0, 1, 2, 0, 1]
        ids.append(engine.add(request(prompt, row, max_tokens=50, speculative=8), cancel_both))
    while engine.step():
        pass
    assert len(seen[0]) == 5
    assert len(seen[1]) <= 5
    assert not engine.has_work


def test_adding_and_cancelling_do_not_wait_for_a_step_under_way():
    backend = HashBackend()
    engine = Engine(backend)
    began, go_on = threading.Event(), threading.Event()
    decode = backend.decode

    def slow(*arguments):
        began.set()
        assert go_on.wait(60)
        return decode(*arguments)

    backend.decode = slow
    engine.add(request([1], max_tokens=3), lambda event: None)
    stepping = threading.Thread(target=engine.step)
    stepping.start()
    assert began.wait(60)
    other = engine.add(request([2], 1, max_tokens=3), lambda event: None)
    engine.cancel(other)
    go_on.set()
    stepping.join(60)
    assert not stepping.is_alive()


def test_requests_of_one_run_may_have_the_same_number():
    requests = [request([1], max_tokens=3), request([2], max_tokens=3)]
    tokens = [event.token_id for event in Engine(HashBackend()).run(requests)]
    assert sorted(tokens) == sorted(HashBackend().greedy([1], 3) + HashBackend().greedy([2], 3))


def test_weights_that_change_under_way_are_read_with_from_then_on():
    backend = HashBackend()
    engine = Engine(backend)
    seen: list = []
    engine.add(request([1, 2, 3], max_tokens=8), seen.append)
    for _ in range(3):
        engine.step()
    backend.weights_version = 1
    backend.rows = [{} for _ in backend.rows]  # as a model that was moved: an empty cache
    while engine.step():
        pass
    assert [event.token_id for event in seen] == HashBackend().greedy([1, 2, 3], 8)


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
