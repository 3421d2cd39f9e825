"""How a sandbox and its supervisor talk: four bytes of length, then so many bytes of JSON."""

import struct
from typing import Protocol

_LENGTH = struct.Struct(">I")


class Readable(Protocol):
    """Where bytes come from."""

    def recv(self, count: int, /) -> bytes:
        """Wait for some, `count` at most; none: it is closed."""
        ...


def framed(text: bytes) -> bytes:
    """Return a message as it is sent."""
    return _LENGTH.pack(len(text)) + text


def split(received: bytearray, most: int) -> bytes | None:
    """Take the first message off what was received; None: it is not whole yet.

    Raises:
        ValueError: it is longer than `most` bytes.
    """
    if len(received) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(received)
    if length > most:
        raise ValueError(f"a message of {length} bytes, where {most} are allowed")
    end = _LENGTH.size + length
    if len(received) < end:
        return None
    message = bytes(received[_LENGTH.size : end])
    del received[:end]
    return message


def receive(channel: Readable) -> bytes:
    """Wait for a whole message of a peer that is trusted.

    Raises:
        EOFError: the peer is gone.
    """
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    return _exactly(channel, length)


def _exactly(channel: Readable, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = channel.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
