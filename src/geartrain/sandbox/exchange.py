"""One run as the supervisor has it: questions and answers, output, and the limits that nothing inside can lift."""

import json
import math
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from geartrain.sandbox import frames, values
from geartrain.sandbox.outcome import Failed, Limits, Reason, Value

_LOOK_SECONDS = 0.025
"""How often the scratch folder is looked at."""
_PART = 1 << 16
_READY_SECONDS = 30.0
_READING = select.POLLIN | select.POLLHUP | select.POLLERR
_FROM_INSIDE = {"error", "value", "memory"}
_MOST_DETAIL = 2000


class OverError(Exception):
    """The run is over: it may not, or cannot, go on."""

    def __init__(self, reason: Reason, detail: str, *, left: bool = False) -> None:
        """`left`: the process closed its channel, so that how it ended says why."""
        super().__init__(detail)
        assert reason in get_args(Reason)
        self.failed = Failed(reason, detail)
        self.left = left


class Exchange:
    """The supervisor's ends of a run's channel and output."""

    def __init__(self, channel: socket.socket, output: int, folder: Path, limits: Limits) -> None:
        """Take over both descriptors; nothing is sent yet."""
        channel.setblocking(False)
        os.set_blocking(output, False)
        self._channel, self._output, self._folder, self.limits = channel, output, folder, limits
        self._poll = select.poll()
        self._poll.register(output, select.POLLIN)
        self._left = limits.seconds
        self._received = bytearray()
        self._sending = memoryview(b"")
        self.printed = bytearray()
        self._looked = time.monotonic()

    def wait_ready(self) -> None:
        """Wait until the process is confined.

        Raises:
            OverError: it is not, so it must not be given any code.
        """
        try:
            message = self._exchange(b"", time.monotonic() + _READY_SECONDS)
        except OverError as over:
            problem = f"the process could not be confined: {over}"
            raise OverError("unavailable", problem) from None
        if message != b'{"ready": true}':
            raise OverError("unavailable", f"the process could not be confined: {message.decode(errors='replace')}")

    def gone(self) -> bool:
        """Return whether the process that was ready has ended since; only before it is asked anything."""
        try:
            return not self._channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def ask(self, request: Mapping[str, Any]) -> Value | Failed:
        """Send a request, and wait for the answer.

        Raises:
            OverError: a limit was reached, or the process is gone, or talks nonsense.
        """
        token = secrets.token_hex(8)
        text = json.dumps({**request, "token": token}).encode()
        until = time.monotonic() + self._left
        message = self._exchange(frames.framed(text), until)
        self._left = until - time.monotonic()
        try:
            reply = values.read_json(message)
        except values.UnfitError as error:
            raise OverError("killed", f"it wrote to the result channel: {error}") from None
        if not isinstance(reply, dict) or reply.get("token") != token:
            raise OverError("killed", "it wrote to the result channel what was no answer to the question")
        return _answer(reply)

    def drain(self) -> None:
        """Read what is left of the output of a process that has ended."""
        with suppress(OverError):
            while self._read_output():
                continue

    def close(self) -> None:
        """Let go of both descriptors."""
        self._channel.close()
        os.close(self._output)

    def _exchange(self, message: bytes, until: float) -> bytes:
        self._sending = memoryview(message)
        while True:
            try:
                received = frames.split(self._received, self.limits.value_bytes)
            except ValueError as error:
                raise OverError("output", str(error)) from None
            if received is not None:
                return received
            self._step(until)

    def _step(self, until: float) -> None:
        now = time.monotonic()
        if now >= until:
            raise OverError("time", f"it took more than {self.limits.seconds:g} s")
        writing = select.POLLOUT if self._sending else 0
        self._poll.register(self._channel, select.POLLIN | writing)
        wait = max(0.0, min(until - now, self._looked + _LOOK_SECONDS - now))
        for descriptor, events in self._poll.poll(math.ceil(wait * 1000)):
            if descriptor == self._output:
                if self._read_output() == b"":
                    self._poll.unregister(self._output)
                continue
            if events & select.POLLOUT:
                self._guarded(self._send)
            if events & _READING:
                self._guarded(self._receive)
        if time.monotonic() >= self._looked + _LOOK_SECONDS:
            self._look()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BlockingIOError:
            return
        except OSError:  # reset, or a pipe that is broken
            raise OverError("killed", "it left without an answer", left=True) from None

    def _send(self) -> None:
        self._sending = self._sending[self._channel.send(self._sending[:_PART]) :]

    def _receive(self) -> None:
        part = self._channel.recv(_PART)
        if not part:
            raise OverError("killed", "it left without an answer", left=True)
        self._received += part

    def _read_output(self) -> bytes | None:
        """Return what was printed: b"" at its end, None if there is nothing yet."""
        try:
            part = os.read(self._output, _PART)
        except BlockingIOError:
            return None
        self.printed += part
        if len(self.printed) > self.limits.output_bytes:
            del self.printed[self.limits.output_bytes :]
            raise OverError("output", f"it printed more than {self.limits.output_bytes} bytes")
        return part

    def _look(self) -> None:
        """See what is in the scratch folder, as far as it may be."""
        self._looked = time.monotonic()
        try:
            with os.scandir(self._folder) as entries:
                sizes = [entry.stat(follow_symlinks=False).st_size for entry in islice(entries, self.limits.files + 1)]
        except OSError as error:
            raise OverError("unavailable", f"the scratch folder cannot be read: {error}") from None
        if len(sizes) > self.limits.files or sum(sizes) > self.limits.disk_bytes:
            raise OverError("disk", f"it wrote more than {self.limits.disk_bytes} bytes or {self.limits.files} files")


def _answer(reply: dict[str, Any]) -> Value | Failed:
    if "value" in reply:
        try:
            return Value(values.untagged(reply["value"]))
        except values.UnfitError as error:
            return Failed("value", str(error))
    reason, detail = reply.get("reason"), reply.get("detail")
    if reason not in _FROM_INSIDE or not isinstance(detail, str):
        raise OverError("killed", "it wrote to the result channel what was no answer to the question")
    return Failed(cast(Reason, reason), detail[:_MOST_DETAIL].encode(errors="replace").decode())
