"""SIGTERM is noted, and work ends at its next safe point."""

import os
import signal

import pytest

from geartrain import preemption
from geartrain.errors import EXIT_INFRASTRUCTURE
from geartrain.progress import bar, mute


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(preemption, "_asked", False)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _work(units, *, told_at, done):
    with bar("work", units) as advance:
        for unit in range(units):
            if unit == told_at:
                os.kill(os.getpid(), signal.SIGTERM)
            done.append(unit)
            advance(1)


def test_a_signal_is_noted_and_the_next_unit_of_work_is_the_last(capsys):
    preemption.listen()
    done = []
    with pytest.raises(preemption.PreemptedError, match="the same command goes on") as caught:
        _work(5, told_at=2, done=done)
    assert done == [0, 1, 2]
    assert caught.value.exit_code == EXIT_INFRASTRUCTURE
    assert preemption.asked()


def test_without_a_signal_nothing_ends(capsys):
    preemption.listen()
    preemption.leave_if_asked()
    with bar("work", 1) as advance:
        advance(1)
    assert "work: 1/1" in capsys.readouterr().err


def test_a_muted_process_shows_nothing_and_still_ends(capsys, monkeypatch):
    monkeypatch.setattr("geartrain.progress._muted", False)
    mute()
    preemption.listen()
    with pytest.raises(preemption.PreemptedError):
        _work(2, told_at=0, done=[])
    assert capsys.readouterr().err == ""
