"""The engine's edges: cancelling, threads, faults, and memory that is short."""

from __future__ import annotations

import threading

import pytest

from llamita.errors import GenerationError
from llamita.inference.engine import Engine
from tests.inference.hash_backend import HashBackend, request, run


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
