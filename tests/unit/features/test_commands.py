"""`geartrain features …` on a workspace whose stages have written their tables."""

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from geartrain import cli
from geartrain.artifacts import manifest_sha256, read_manifest, write_manifest
from geartrain.errors import UserError
from geartrain.features.tables import TABLES, write_tables
from geartrain.lineage import events, evidence
from geartrain.lineage.events import Data
from geartrain.lineage.index import make_anew
from geartrain.lineage.verification import check_events
from geartrain.stages.stage import FOLDERS, KINDS
from tests.unit.features.conftest import row

KEY = ("task_id=t", "family=f", "siblings=4")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GEARTRAIN_HOME", raising=False)
    monkeypatch.chdir(tmp_path)  # a command goes to its workspace: come back from there
    for folder, tick in (("data/preferences", 0), ("models/policy", 3)):
        rows = [row("task_history", "t", tick, attempts=6 + tick)]
        write_tables(tmp_path / folder / "features", {"task_history": rows})
    return tmp_path


def features(*arguments: str, workspace: Path) -> Result:
    os.chdir(workspace)
    result = CliRunner().invoke(cli.app, ["features", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_walk_from_nothing_to_an_answer(workspace: Path) -> None:
    before = features("show", workspace=workspace).stdout
    assert "no service yet: geartrain features apply" in before
    line = next(line for line in before.splitlines() if line.startswith("task_history"))
    assert line.split() == ["task_history", "2", "1", "2000-01-01T03:00:00+00:00", "2000-01-01T03:00:00+00:00"]
    applied = features("apply", workspace=workspace).stdout
    assert "FeatureService sampler_v1" in applied
    assert "sampler_v1          The policy's task sampler" in features("show", workspace=workspace).stdout
    shown = features("show", "sampler_v1", workspace=workspace).stdout
    assert shown.startswith("sampler_v1 is asked by task_id, family, siblings, and gives:\n  attempts\n")
    assert _attempts(features("get", "sampler_v1", *KEY, workspace=workspace)) == 9
    early = ("--as-of", "2000-01-01T04:00:00+02:00")
    assert _attempts(features("get", "sampler_v1", *KEY, *early, workspace=workspace)) == 6
    assert features("get", "sampler_v1", *KEY, "--online", workspace=workspace).stdout.count("null") > 5
    assert "task_history" in features("materialize", workspace=workspace).stdout
    assert _attempts(features("get", "sampler_v1", *KEY, "--online", workspace=workspace)) == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("get", "sampler_v1", *KEY),
            "no feature service 'sampler_v1'; there are none: `geartrain features apply` first",
        ),
        (("get", "sampler_v1", *KEY, "--online", "--as-of", "2000-01-01"), "--online knows the newest values alone"),
        (("materialize",), "the registry has no views"),
        (("materialize", "--until", "2000-01-01"), r"--until 2000-01-01: has no time zone; add Z"),
        (("materialize", "--until", "soon"), "--until soon: not a time"),
        (("apply", "--dir", "nowhere"), "--dir nowhere: no such folder"),
    ],
)
def test_what_cannot_be_answered_says_what_to_do(arguments: tuple[str, ...], message: str, workspace: Path) -> None:
    with pytest.raises(UserError, match=message):
        features(*arguments, workspace=workspace)


@pytest.mark.parametrize(("key", "message"), [("siblings", "expected KEY=VALUE"), ("siblings=x", "a whole number")])
def test_a_key_that_is_none_is_named(key: str, message: str, workspace: Path) -> None:
    features("apply", workspace=workspace)
    with pytest.raises(UserError, match=f"^{key}: .*{message}"):
        features("get", "sampler_v1", key, workspace=workspace)


def test_a_workspace_without_features_says_how_to_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"no features yet. `geartrain run --until preferences` makes them"):
        features("show", workspace=tmp_path)


def _attempts(result: Result) -> int:
    return int(json.loads(result.stdout)["attempts"])


def sealed(folder: Path, tick: int) -> None:
    """A finished run that has learned something, and whose lineage tells of it."""
    for stage in ("preferences", "policy"):
        place, rows = folder / FOLDERS[stage], [row("task_history", "t", tick, attempts=tick)]
        write_tables(place / "features", {name: rows if name == "task_history" else [] for name in TABLES})
        inputs = {"collect": str(tick) * 64}
        made = write_manifest(place, stage=stage, parameters={}, inputs=inputs, metrics={})
        told = {"run_id": events.new_run_id(), "job": stage, "inputs": inputs}
        log = folder / ".geartrain/lineage"
        output = Data(stage, made.digest, KINDS[FOLDERS[stage].parts[0]], FOLDERS[stage].as_posix())
        events.emit(log, "START", **told, outputs=())
        events.emit(log, "COMPLETE", **told, outputs=[output])


def test_what_is_kept_is_told_with_the_lineage_of_the_runs_that_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEARTRAIN_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    sealed(tmp_path / "runs/a", 1)
    sealed(tmp_path / "runs/b", 2)
    shutil.rmtree(tmp_path / "runs/b/.geartrain")  # nobody knows who made that
    first = features("keep", "runs/a", workspace=tmp_path)
    assert first.stdout.splitlines()[-1].startswith("data/history: ")
    old = read_manifest(Path("data/history")).digest
    features("keep", "runs/a", workspace=tmp_path)
    features("keep", "runs/b", workspace=tmp_path)
    new = read_manifest(Path("data/history"))
    index = make_anew(tmp_path / ".geartrain/lineage")
    assert {node.digest for node in index.up(new.digest) if node.digest} == {new.digest, old, *new.ancestors} - {
        "2" * 64
    }
    assert {node.digest: node.type for node in index.made_from(["1" * 64])}[new.digest] == "dataset"
    types = {node.digest: node.type for node in index.artifacts()}
    assert [types[digest] for name, digest in new.inputs.items() if digest not in index.made()] == ["source"] * 2
    assert evidence.manifests(index, new.digest) == {manifest_sha256(Path("data/history"))}
    assert {finding.what for finding in check_events(index).findings} == {
        "was read, and no run in this lineage made it"
    }
    assert not list(Path(".geartrain/work").glob("history-*")), "only locks are left"
