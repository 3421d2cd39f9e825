"""A workspace of three artifacts and one raw file, told of in lineage; and what one does with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from geartrain import artifacts
from geartrain.cli import app
from geartrain.lineage import events
from geartrain.lineage.events import Data
from geartrain.stages.stage import FOLDERS, KINDS

RUNNER = CliRunner()
INPUTS = {"tasks": (), "warm_start": ("tasks",), "policy": ("tasks", "warm_start")}


def make(stage: str, content: str = "first") -> str:
    """Write the artifact of a stage, with its events; return its digest."""
    folder = FOLDERS[stage]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "content.txt").write_text(f"{stage} {content}")
    inputs = {name: artifacts.read_manifest(FOLDERS[name]).digest for name in INPUTS[stage]}
    raw = {"environment.source": artifacts.file_sha256(Path("data/raw/chinook.json"))} if stage == "tasks" else {}
    origins = [artifacts.origins(artifacts.read_manifest(FOLDERS[name])) for name in inputs]
    ancestors = {digest: name for known in origins for digest, name in known.items()}
    made = artifacts.write_manifest(
        folder, stage=stage, parameters={}, inputs={**inputs, **raw}, metrics={}, ancestors=ancestors
    )
    read = [
        Data(name, digest, path=FOLDERS[name].as_posix(), manifest=artifacts.manifest_sha256(FOLDERS[name]))
        for name, digest in inputs.items()
    ]
    read += [Data(name, digest, "source", "data/raw/chinook.json") for name, digest in raw.items()]
    told = {"run_id": events.new_run_id(), "job": stage, "inputs": read}
    events.emit(Path(".geartrain/lineage"), "START", **told, outputs=())
    output = Data(
        stage, made.digest, KINDS[folder.parts[0]], folder.as_posix(), manifest=artifacts.manifest_sha256(folder)
    )
    facets = {"metrics": {"values": {}}}
    events.emit(Path(".geartrain/lineage"), "COMPLETE", **told, outputs=[output], facets=facets)
    return made.digest


def verify(*arguments: str) -> tuple[int, str]:
    result = RUNNER.invoke(app, ["lineage", "verify", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.output


def log() -> Path:
    (path,) = Path(".geartrain/lineage/journal").glob("*.ndjson")
    return path


def lines() -> list[bytes]:
    return log().read_bytes().splitlines(keepends=True)


def flip(path: Path, place: int = 5) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def edit_manifest(stage: str, change: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """Change what an artifact says of its making; its files and its digest stay as they are."""

    def harm() -> None:
        path = FOLDERS[stage] / "manifest.json"
        record = json.loads(path.read_text())
        change(record)
        artifacts.write_json(path, record)

    return harm


def hide_input(record: dict[str, Any]) -> None:
    record["ancestors"].pop(record["inputs"].pop("tasks"))
