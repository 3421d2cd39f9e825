"""A made-up history: many runs of many jobs, written as a journal without its fsyncs."""

import hashlib
import itertools
import json
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from geartrain.lineage import journal, openlineage
from geartrain.lineage.events import NAMESPACE, Data

START = datetime(2026, 1, 1, tzinfo=UTC)


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def write_history(
    folder: Path,
    *,
    runs: int = 10_000,
    datasets: int = 1_000,
    models: int = 1_000,
    events: int | None = None,
    seed: int = 0,
) -> list[str]:
    """Write a journal of so many runs; return the digests of data from outside that some run reads.

    A tenth of the runs builds datasets (of one to four older ones), a tenth trains models (of datasets and an older
    model), the rest evaluates models. With `events`, runs are repeated (START and ABORT) until there are so many.
    """
    rng = random.Random(seed)
    writer = _Writer(folder)
    raw = [Data(f"raw-{n}", digest(f"raw-{n}"), "source", licence="CC-BY-4.0") for n in range(max(1, datasets // 10))]
    sets, trained = list(raw), [Data("base", digest("base"), "model")]
    used: set[Data] = set()
    makes = iter(_interleaved(runs, datasets - len(raw), models))
    wanted = 2 * runs if events is None else events
    for number in itertools.count():
        if number >= runs and writer.count >= wanted:
            break
        what = next(makes, "again")
        inputs = rng.sample(sets[-60:], min(len(sets), rng.randint(1, 3)))
        inputs += [rng.choice(raw)] if number % 4 == 0 and what != "report" else []
        used.update(inputs)
        if what == "dataset":
            output = Data(f"set-{len(sets) % 20}", digest(f"set {number}"), "dataset", "data/tasks")
            sets.append(output)
        elif what == "model":
            inputs = [*inputs, rng.choice(trained[-40:])]
            output = Data(f"model-{len(trained) % 50}", digest(f"model {number}"), "model", "models/policy")
            trained.append(output)
        elif what == "report":
            inputs = [rng.choice(trained[-40:])]
            output = Data("evaluation", digest(f"report {number}"), "report", "reports/evaluation")
        else:
            writer.run(number, "warm_start", inputs, [], "ABORT")
            continue
        writer.run(
            number, {"dataset": "tasks", "model": "policy"}.get(what, "evaluation"), inputs, [output], "COMPLETE"
        )
    writer.close()
    return [item.digest for item in raw if item in used]


def _interleaved(runs: int, datasets: int, models: int) -> list[str]:
    every = {"dataset": datasets / runs, "model": models / runs}
    made = {"dataset": 0, "model": 0}
    plan = []
    for number in range(1, runs + 1):
        kind = next((kind for kind in every if made[kind] < every[kind] * number), "report")
        if kind in made:
            made[kind] += 1
        plan.append(kind)
    return plan


class _Writer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / journal.JOURNAL
        self._folder.mkdir(parents=True)
        self._name = digest(str(folder))[:16]
        self._head, self._buffer = journal.Head(), bytearray()
        self._template = _template()
        self.count = 0

    def run(self, number: int, stage: str, inputs: list[Data], outputs: list[Data], end: str) -> None:
        run_id = str(uuid.UUID(int=number + (7 << 76) + (2 << 62)))
        for kind, made, offset in (("START", [], 0), (end, outputs, 40)):
            when = START + timedelta(minutes=5 * number, seconds=offset)
            event = {
                **self._template,
                "eventType": kind,
                "eventTime": when.isoformat(timespec="microseconds"),
                "job": {"namespace": "local://geartrain", "name": f"geartrain.{stage}"},
                "run": {"runId": run_id, "facets": {**self._template["run"]["facets"]}},
                "inputs": [_item(item) for item in inputs],
                "outputs": [_item(item) for item in made],
            }
            self._append(event)

    def _append(self, event: dict[str, Any]) -> None:
        place = {"writer": self._name, "sequence": self._head.count, "previous": self._head.sha256}
        event["run"]["facets"][journal.CHAIN] = {**openlineage.chain_facet(), **place}
        line = json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
        full = self._head.size + len(line) > journal.SEGMENT_BYTES
        if full:
            self._flush()
        segment, size = (self._head.segment + 1, 0) if full else (self._head.segment, self._head.size)
        self._head = self._head.after(line, segment=segment, size=size + len(line) + 1)
        self._buffer += line + b"\n"
        self.count += 1

    def _flush(self) -> None:
        journal.segment_path(self._folder, self._name, self._head.segment).write_bytes(self._buffer)
        self._buffer = bytearray()

    def close(self) -> None:
        self._flush()
        (self._folder / f"{self._name}.head").write_bytes(self._head.text())


_ITEMS: dict[Data, dict[str, Any]] = {}


def _item(data: Data) -> dict[str, Any]:
    if data not in _ITEMS:
        fields = {**data.__dict__, "namespace": NAMESPACE}
        (_ITEMS[data],) = openlineage.datasets([fields])
    return _ITEMS[data]


def _template() -> dict[str, Any]:
    """An event with facets as long as those of a real stage."""
    parameters = {f"policy.setting_{n}": n / 7 for n in range(40)}
    return openlineage.build_event(
        "START", time=START.isoformat(), run_id=str(uuid.UUID(int=7)), namespace="x", job="x", inputs=(), outputs=(),
        facets={
            "parameters": {"seed": 0, "policy": parameters},
            "code": {"digest": "0" * 64, "version": "0.1.0"},
            "environment": {"python": "3.11", "machine": "x86_64"},
            "stage": {"name": "policy", "key": "0" * 64, "attempt": 1},
        },
        parent={"run": str(uuid.UUID(int=9)), "namespace": "x", "job": "geartrain"}, source=None,
    )  # fmt: skip
