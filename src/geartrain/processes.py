"""What ties processes to the one that started them."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from geartrain import logs

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 10.0


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, however that ends. Only on Linux; else nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run_to_end(main: Callable[[], object]) -> tuple[int, BaseException | None]:
    """Run a command line; return its exit code and what it failed of. A bug is printed with its traceback."""
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return code, end.__context__  # what the command line made an exit code of
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1, error
    return 0, None


def run_group(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a command in a process group of its own; return its exit code.

    When this process is told to stop (SIGTERM, Ctrl-C), so is the whole group, and killed if it takes too long; when
    this process is killed, the command is.
    """
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        piped = subprocess.PIPE if logs.says_json() else None
        with (
            subprocess.Popen(  # noqa: S603
                command, cwd=cwd, env=env, start_new_session=True, preexec_fn=end_with_parent, stderr=piped
            ) as process,
            logs.relaying(process.stderr),
        ):
            try:
                return process.wait()
            except BaseException:
                _end(process)
                raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
