"""The journal, sent to a receiver that speaks OpenLineage over HTTP. May be stopped and repeated at any time.

After every event that the receiver took, a note says how far it has come, so the next export goes on from there. If an
answer is lost, nobody can know whether the event was taken: it is sent again, word for word, with the same run id, type
and time.
"""

import fcntl
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from geartrain.errors import InfrastructureError, UserError
from geartrain.lineage import journal
from geartrain.lineage.events import stage_of

NOTES = "exports"
"""Folder of a lineage folder: for each receiver a file of lines `WRITER NUMBER`, of which the last counts."""
TIMEOUT = 30.0
"""Seconds that a receiver has for its answer."""
_PASSING = frozenset({408, 425, 429})


@dataclass(frozen=True)
class Sent:
    """What an export did."""

    now: int
    """Events sent by it."""
    before: int
    """Events that earlier ones sent."""


def export(
    folder: Path,
    url: str,
    *,
    key: str | None = None,
    timeout: float = TIMEOUT,
    progress: Callable[[int], None] = lambda number: None,
) -> Sent:
    """Send every event of a lineage folder that a receiver has not got yet, by time.

    Args:
        folder: the lineage folder.
        url: of the receiver; events go to `URL/api/v1/lineage`.
        key: a bearer token.
        timeout: seconds for one answer.
        progress: gets the number of events sent so far.

    Raises:
        UserError: the address is none, the receiver refuses us, or refuses an event; what comes after it is not sent.
        InfrastructureError: the receiver did not answer, or has trouble of its own; the same call goes on from there.
    """
    from geartrain.lineage import openlineage

    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise UserError(f"{url}: not the address of a receiver; write http://HOST:PORT or https://HOST")
    post = openlineage.receiver(url.rstrip("/") + "/", key=key, timeout=timeout)
    number = 0
    with _note(folder, url) as (note, done):
        before = sum(done.values())
        for writer, place, event in journal.in_order(folder, done):
            try:
                post(event)
            except OSError as error:
                raise _translate(openlineage.refusal(error), error, url, event) from error
            note.write(f"{writer} {place + 1}\n")
            note.flush()
            number += 1
            progress(number)
    return Sent(number, before)


@contextmanager
def _note(folder: Path, url: str) -> Iterator[tuple[IO[str], dict[str, int]]]:
    """Hold the note of a receiver: the file to append to, and writer -> number of its events that were sent."""
    path = folder / NOTES / f"{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:16]}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InfrastructureError(f"{url}: another export to it is under way; wait for its end") from error
        file.seek(0)
        done: dict[str, int] = {}
        for line in file.read().splitlines(keepends=True):
            writer, _, number = line.partition(" ")
            if line.endswith("\n") and number.strip().isdigit():
                done[writer] = max(done.get(writer, 0), int(number))
        yield file, done


def _translate(
    answer: tuple[int, str] | None, error: OSError, url: str, event: Mapping[str, Any]
) -> UserError | InfrastructureError:
    what = f"{event['eventType']} of {stage_of(event)}, run {event['run']['runId']}"
    if answer is None:
        return InfrastructureError(
            f"{url}: no answer to {what} ({type(error).__name__}). The same command goes on there."
        )
    status, text = answer
    said = " ".join(text.split())[:300]
    if status >= 500 or status in _PASSING:
        return InfrastructureError(f"{url}: answered {status} to {what}: {said}. The same command goes on there.")
    if status in (401, 403):
        return UserError(f"{url}: refuses us ({status}). Set OPENLINEAGE_API_KEY to a key that may write there.")
    if status in (404, 405):
        return UserError(f"{url}: has no api/v1/lineage ({status}); give the address without that part.")
    return UserError(f"{url}: refuses {what} ({status}): {said}. Nothing after it was sent.")
