"""The sandbox as its users have it: `Sandbox().run(code, [Call("f", [1])])`. The package says what holds, what not."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from geartrain.errors import UserError
from geartrain.sandbox import trial, values
from geartrain.sandbox.exchange import Exchange, OverError
from geartrain.sandbox.handle import Ended, Zygote
from geartrain.sandbox.outcome import Call, Failed, Limits, Outcome, Value

_USUAL = Limits()


class Sandbox:
    """A zygote, and the runs that it forks: one at a time. Threads may share it; for two runs at once take two.

    It is a context manager; without, it ends when it is collected, and with this process, however that ends.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        """Start the zygote.

        Args:
            imports: modules beside the standard library that code may import, such as "numpy".

        Raises:
            UserError: this machine cannot confine a process, or one of `imports` is not there; the message says what
                is missing. No code is ever run without.
        """
        self._imports = tuple(imports)
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self.findings: list[trial.Finding] = []
        """What the trial of the present zygote saw."""
        self.abi = self._ready().abi
        """The version of Landlock that confines; see `landlock`."""

    def run(self, code: str, calls: Sequence[Call], limits: Limits = _USUAL) -> Outcome:
        """Load code in a fresh process, and call its functions one after the other.

        Raises:
            UserError: an argument of a call is no data, or there is no call: no answer would look like no failure.
        """
        if not calls:
            raise UserError("a run without calls proves nothing: name at least one")
        with self.program(code, limits) as program:
            answers = [program.call(call) for call in calls]
        return program.outcome(answers)

    @contextmanager
    def program(self, code: str, limits: Limits = _USUAL) -> Iterator["Program"]:
        """As `run`, for a caller that decides by one answer what to ask next, as a trusted test does."""
        with self._lock:
            try:
                zygote, program = self._begun(limits)
            except (UserError, OSError, OverError) as error:
                self._close()
                yield _Absent(limits, f"there is no sandbox: {error}")
                return
            try:
                program.load(code)
                yield program
            finally:
                program.end()
                if zygote.lost:
                    self._close()
                else:
                    zygote.prepare(limits)

    def close(self) -> None:
        """End the zygote, and remove its folder."""
        with self._lock:
            self._close()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> Zygote:
        if self._zygote is not None and self._zygote.owner != os.getpid():
            self._zygote = None  # this process is a fork: the zygote serves the other
        if self._zygote is None:
            zygote = Zygote(self._imports)
            try:
                self.findings = _tried(zygote)
            except BaseException:
                zygote.close()
                raise
            self._zygote = zygote
        return self._zygote

    def _begun(self, limits: Limits) -> tuple[Zygote, "Program"]:
        zygote = self._ready()
        try:
            return zygote, Program(zygote, limits)
        except (OSError, OverError):  # it died while it waited; no code has been sent, so try again
            self._close()
            zygote = self._ready()
            return zygote, Program(zygote, limits)

    def _close(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


class Program:
    """Code that is loaded, and can be called."""

    def __init__(self, zygote: Zygote, limits: Limits) -> None:
        """Have a process made for it.

        Raises:
            OSError: there is no zygote any more.
            OverError: the process could not be confined.
        """
        self._start = time.monotonic()
        self._zygote, self._limits = zygote, limits
        self._exchange: Exchange | None = zygote.fork(limits)
        self._over: Failed | None = None
        self._seconds = self._cpu_seconds = 0.0
        self._output = b""

    def load(self, code: str) -> None:
        """Load the code."""
        loaded = self._ask({"code": code})
        self._over = loaded if isinstance(loaded, Failed) else None

    def call(self, call: Call) -> Value | Failed:
        """Call a function of the code. After a failure that ended the run, each call has that failure.

        Raises:
            UserError: an argument is no data.
        """
        try:
            arguments, keywords = values.tagged(list(call.arguments)), values.tagged(dict(call.keywords))
        except values.UnfitError as error:
            raise UserError(f"arguments of {call.function}: {error}") from None
        return self._ask({"function": call.function, "arguments": arguments, "keywords": keywords})

    def end(self) -> None:
        """End the process, if it has not ended."""
        if self._exchange is not None:
            self._stop(None)

    def outcome(self, answers: Sequence[Value | Failed]) -> Outcome:
        """Return what the run came to, when it has ended."""
        return Outcome(tuple(answers), self._seconds, self._cpu_seconds, self._output.decode(errors="replace"))

    def _ask(self, request: dict[str, Any]) -> Value | Failed:
        if self._over is None:
            assert self._exchange is not None
            try:
                return self._exchange.ask(request)
            except OverError as over:
                self._stop(over)
        assert self._over is not None
        return self._over

    def _stop(self, over: OverError | None) -> None:
        assert self._exchange is not None
        with closing(self._exchange) as exchange:
            self._exchange = None
            try:
                ended = self._zygote.end()
            except OSError as error:
                self._zygote.lost = True
                ended = None
                problem = Failed("unavailable", f"the sandbox ended: {error}")
            exchange.drain()
        self._output = bytes(exchange.printed)
        self._seconds = time.monotonic() - self._start
        self._cpu_seconds = 0.0 if ended is None else ended.cpu_seconds
        if over is not None:
            self._over = over.failed
            if over.left:
                self._over = problem if ended is None else _why(ended, self._limits)
        elif self._over is None:
            self._over = Failed("unavailable", "the run is over")


def _tried(zygote: Zygote) -> list[trial.Finding]:
    """Try every wall of a new zygote's sandbox.

    Raises:
        UserError: one does not hold.
    """
    try:
        program = Program(zygote, trial.LIMITS)
        program.load(trial.CODE)
        answer = program.call(trial.CALL)
        program.end()
    except (OSError, OverError) as error:
        raise UserError(f"no sandbox on this machine: {error}") from error
    found = trial.findings(answer)
    trial.check(found)
    return found


class _Absent(Program):
    """What there is instead of a program where the sandbox itself is gone."""

    def __init__(self, limits: Limits, problem: str) -> None:
        self._limits, self._exchange = limits, None
        self._over = Failed("unavailable", problem)
        self._seconds = self._cpu_seconds = 0.0
        self._output = b""


def _why(ended: Ended, limits: Limits) -> Failed:
    """Return why a process left without an answer."""
    if os.WIFEXITED(ended.status):
        return Failed("killed", f"it ended itself, with exit code {os.WEXITSTATUS(ended.status)}, without an answer")
    number = os.WTERMSIG(ended.status)
    if number == signal.SIGKILL and ended.cpu_seconds > 0.9 * limits.cpu_seconds:  # the two clocks are not one
        return Failed("time", f"it took more than {limits.cpu_seconds} s of CPU")
    if number == signal.SIGKILL:
        return Failed("killed", "it closed its channel, or was killed (out of memory, most often)")
    return Failed("killed", f"it died of {signal.Signals(number).name}")
