"""Pieces of work for processes of their own; each says what happened by a file or an error."""

import os
import signal
import time
from pathlib import Path

from geartrain.errors import InfrastructureError, UserError


def write(path, text, on_progress):
    for _ in range(3):
        on_progress(2)
    path.write_text(f"{text} {os.environ.get('OMP_NUM_THREADS', '')}")


def fail_as_user(path, text, on_progress):
    raise UserError(f"{text}: mend it")


def fail_with_baggage(path, text, on_progress):
    class UnsendableError(InfrastructureError):
        def __init__(self, first, second):
            super().__init__(first)

    raise UnsendableError(f"{text}: no disk", object())


def die(path, text, on_progress):
    os.kill(os.getpid(), signal.SIGKILL)


def work_forever_unless_stopped(path, text, on_progress):
    if text == "fails":
        raise UserError("the other one failed")
    while True:
        on_progress(1)


def own_id(on_progress):
    on_progress(1)
    return os.getpid()


def wait_for_the_end_of(process, seconds=20.0):
    """Return when a process is gone or a zombie; fail after some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state in "ZX":
            return
        time.sleep(0.05)
    raise AssertionError(f"process {process} lives on")
