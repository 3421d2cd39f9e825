"""The event log is append-only, chained, and survives a cut line."""

import hashlib
import threading
from pathlib import Path

from geartrain.lineage import events


def emit(log: Path, job: str = "tasks") -> dict[str, object]:
    return events.emit(log, "START", run_id=events.new_run_id(), job=job, inputs={"a": "1"}, outputs={})


def test_each_line_carries_the_hash_of_the_line_before(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson"
    for _ in range(3):
        emit(log)
    lines = log.read_bytes().splitlines()
    chain = [event["previous"] for event in events.read_events(log)]
    assert chain == [events.GENESIS, *(hashlib.sha256(line).hexdigest() for line in lines[:2])]


def test_a_line_cut_short_by_a_crash_harms_no_other(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson"
    emit(log)
    with log.open("ab") as file:
        file.write(b'{"eventType": "ST')
    emit(log, "collect")
    assert [event["job"]["name"] for event in events.read_events(log)] == ["tasks", "collect"]


def test_writers_at_the_same_time_keep_one_chain(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson"
    threads = [threading.Thread(target=lambda: [emit(log) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = log.read_bytes().splitlines()
    chain = [event["previous"] for event in events.read_events(log)]
    assert len(lines) == 40
    assert chain == [events.GENESIS, *(hashlib.sha256(line).hexdigest() for line in lines[:-1])]


def test_lines_that_are_no_events_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson"
    log.write_text("null\n[1]\n{}\n" + "[" * 3000 + "\n")
    assert events.read_events(log) == []
