"""The journal is append-only and chained; a crash at any place loses nothing and harms no other line."""

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from geartrain.errors import UserError
from geartrain.lineage import journal, mirror


def event(number: int = 0, *, seconds: int = 0, fill: str = "") -> journal.Event:
    when = f"2026-01-01T00:00:{seconds:02d}.000000+00:00"
    return {
        "eventType": "START", "eventTime": when, "job": {"name": str(number)}, "run": {"runId": "r"}, "fill": fill
    }  # fmt: skip


def append(folder: Path, *args: int, **keys: object) -> None:
    journal.append(folder, event(*args, **keys))  # type: ignore[arg-type]


def names(folder: Path) -> list[str]:
    return [found["job"]["name"] for found in journal.read_events(folder)]


def only_file(folder: Path, pattern: str = "*.ndjson") -> Path:
    (path,) = (folder / "journal").glob(pattern)
    return path


def assert_chained(folder: Path) -> int:
    """Check the chain of every writer over all of its segments; return the number of lines."""
    total = 0
    for name, paths in journal.writers(folder).items():
        head = journal.Head()
        for path in paths:
            for line in journal.read_lines(path):
                if line.event is not None:
                    place = line.event["run"]["facets"][journal.CHAIN]
                    assert (place["writer"], place["sequence"], place["previous"]) == (name, head.count, head.sha256)
                head = head.after(line.text, segment=0, size=0)
        assert (head.count, head.sha256) == _told(folder / "journal" / f"{name}.head")
        total += head.count
    return total


def _told(path: Path) -> tuple[int, str]:
    head = journal.read_head(path)
    assert head is not None
    return head.count, head.sha256


def test_each_line_carries_the_hash_of_the_line_before(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, number)
    lines = only_file(tmp_path).read_bytes().splitlines()
    chain = [found["run"]["facets"][journal.CHAIN]["previous"] for found in journal.read_events(tmp_path)]
    assert chain == [journal.GENESIS, *(hashlib.sha256(line).hexdigest() for line in lines[:2])]
    assert assert_chained(tmp_path) == 3


def test_a_line_cut_short_by_a_crash_is_ended_and_harms_no_other(tmp_path: Path) -> None:
    append(tmp_path, 0)
    with only_file(tmp_path).open("ab") as file:
        file.write(b'{"eventType": "ST')
    append(tmp_path, 1)
    assert names(tmp_path) == ["0", "1"]
    assert assert_chained(tmp_path) == 3, "the chain runs over the cut line"


def test_a_crash_between_line_and_head_is_mended(tmp_path: Path) -> None:
    append(tmp_path, 0)
    head = only_file(tmp_path, "*.head")
    before = head.read_bytes()
    append(tmp_path, 1)
    head.write_bytes(before)
    append(tmp_path, 2)
    assert names(tmp_path) == ["0", "1", "2"]
    assert assert_chained(tmp_path) == 3


def test_a_crash_after_a_new_segment_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 300)
    append(tmp_path, 0)
    head = only_file(tmp_path, "*.head")
    before = head.read_bytes()
    append(tmp_path, 1)
    head.write_bytes(before)
    append(tmp_path, 2)
    assert len(list((tmp_path / "journal").glob("*.ndjson"))) == 3
    assert names(tmp_path) == ["0", "1", "2"]
    assert assert_chained(tmp_path) == 3


def test_nobody_goes_on_writing_to_a_file_that_was_cut(tmp_path: Path) -> None:
    append(tmp_path, 0)
    append(tmp_path, 1)
    cut = only_file(tmp_path)
    first = cut.read_bytes().splitlines(keepends=True)[0]
    cut.write_bytes(first)
    append(tmp_path, 2, seconds=1)
    assert cut.read_bytes() == first, "the evidence stays as it is"
    assert names(tmp_path) == ["0", "2"]


def test_merging_is_by_time_and_keeps_the_order_of_each_writer(tmp_path: Path) -> None:
    append(tmp_path, 0, seconds=30)
    append(tmp_path, 1, seconds=10)  # the clock was set back
    append(tmp_path, 2, seconds=40)
    other = tmp_path / "other"
    append(other, 3, seconds=35)
    (tmp_path / "pulled").mkdir()
    for path in (other / "journal").iterdir():
        path.rename(tmp_path / "pulled" / path.name)
    assert names(tmp_path) == ["0", "1", "3", "2"]


def test_what_was_pulled_of_our_own_is_read_once(tmp_path: Path) -> None:
    append(tmp_path, 0)
    (tmp_path / "pulled").mkdir()
    for path in (tmp_path / "journal").iterdir():
        (tmp_path / "pulled" / path.name).write_bytes(path.read_bytes())
    assert names(tmp_path) == ["0"]


def test_threads_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    threads = [threading.Thread(target=lambda: [append(tmp_path, n) for n in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(tmp_path)) == assert_chained(tmp_path) == 40


def test_lines_that_are_no_events_are_left_out(tmp_path: Path) -> None:
    append(tmp_path, 0)
    with only_file(tmp_path).open("ab") as file:
        file.write(b"null\n[1]\n{}\n" + b"[" * 3000 + b"\n")
    assert names(tmp_path) == ["0"]


def test_an_unreadable_head_stops_its_writer(tmp_path: Path) -> None:
    append(tmp_path, 0)
    only_file(tmp_path, "*.head").write_text("nonsense\n")
    append(tmp_path, 1)
    assert len(journal.writers(tmp_path)) == 2


EVENTS = 10_000
KILLS = 12


def _write_all(folder: Path, first: int, done: Path) -> None:
    """Append the numbers from `first` on, each once; note the next one before and after, as a resuming stage would."""
    for number in range(first, EVENTS, 2):
        append(folder, number, fill="x" * 200)
        done.write_text(str(number))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_processes_and_sigkill_lose_nothing_of_ten_thousand(tmp_path: Path) -> None:
    """Two processes write; each is killed several times in the middle, and goes on from what it knows is written."""
    context = multiprocessing.get_context("fork")
    notes = [tmp_path / f"done-{writer}" for writer in range(2)]
    nexts = [0, 1]
    workers = [context.Process(target=_write_all, args=(tmp_path, nexts[n], notes[n])) for n in range(2)]
    for worker in workers:
        worker.start()
    for kill in range(KILLS):
        which = kill % 2
        goal = (kill // 2 + 1) * EVENTS // (KILLS // 2 + 1)
        while workers[which].is_alive() and _number(notes[which]) < goal:
            workers[which].join(0.001)
        os.kill(workers[which].pid or 0, signal.SIGKILL)
        workers[which].join()
        nexts[which] = max(_number(notes[which]) + 2, which)
        workers[which] = context.Process(target=_write_all, args=(tmp_path, nexts[which], notes[which]))
        workers[which].start()
    for worker in workers:
        worker.join()
    written = [int(name) for name in names(tmp_path)]
    assert set(written) == set(range(EVENTS)), "nothing is lost"
    assert len(written) - EVENTS <= KILLS, "twice is only what was killed between its line and its note"
    assert_chained(tmp_path)


def _number(note: Path) -> int:
    try:
        return int(note.read_text() or -2)
    except (OSError, ValueError):
        return -2


def test_a_head_is_overwritten_in_place(tmp_path: Path) -> None:
    small, large = journal.Head(), journal.Head(10**9, "f" * 64, 10**6, 10**8)
    assert len(small.text()) == len(large.text())
    assert journal.parse_head(large.text()) == large
    assert json.loads(small.text())["count"] == 0


def test_a_copied_lineage_goes_on_under_a_writer_of_its_own_and_both_can_be_merged(tmp_path: Path) -> None:
    """Two that write one chain would be two pasts of one file, of which a merge could keep only one."""
    here, there = tmp_path / "here", tmp_path / "there"
    append(here, 0)
    shutil.copytree(here, there)
    append(here, 1)
    append(there, 2)
    assert len(journal.writers(there)) == 2
    mirror.pull(here, str(there))
    mirror.pull(there, str(here))
    assert sorted(names(here)) == sorted(names(there)) == ["0", "1", "2"]
    append(there, 3)
    assert mirror.pull(here, str(there)).keys() != set()
    assert sorted(names(here)) == ["0", "1", "2", "3"]


def test_somebody_who_went_on_under_our_writer_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    """As lineages did that were copied before heads noted where they lie."""
    here, there = tmp_path / "here", tmp_path / "there"
    append(here, 0)
    shutil.copytree(here, there)
    head = only_file(there, "*.head")
    told = journal.read_head(head)
    assert told is not None
    head.write_bytes(replace(told, inode=0).text())
    append(there, 2)
    with pytest.raises(UserError, match="gone on from a copy"):
        mirror.pull(here, str(there))
