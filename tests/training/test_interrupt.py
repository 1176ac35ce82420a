"""Signals to a run: the first is noted, and of several ranks' the later ones as well."""

from __future__ import annotations

import os
import signal

import pytest

from llamita.training.interrupt import noted_interrupts, raised_ends


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_noted_and_a_second_one_stops_at_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with noted_interrupts() as interrupt:
        assert not interrupt.asked
        os.kill(os.getpid(), number)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_rank_that_gets_a_signal_from_torchrun_too_goes_on_saving() -> None:
    with noted_interrupts(patient=True) as interrupt:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.asked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_saves_nothing_ends_as_by_ctrl_c(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), raised_ends():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    with raised_ends(), noted_interrupts() as interrupt:  # a run inside has its own way
        os.kill(os.getpid(), number)
        assert interrupt.asked
