"""What may be deleted: never what a promoted model was made from, in the cache nor in the remote."""

from pathlib import Path

import pytest

from geartrain import artifacts, withdrawals
from geartrain.errors import UserError
from geartrain.lineage import events
from geartrain.lineage.events import Data
from geartrain.stages.stage import LINEAGE
from tests.fakes.dvc_projects import say, seal, shell, start

VERSIONS = ("v0", "v1", "v2")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three versions of rollouts, the last of them tagged; a promoted model was made from v1."""
    monkeypatch.setenv("GEARTRAIN_HOME", ".geartrain")
    project = start(tmp_path / "project", "../remote", git=True)
    (project / ".gitignore").write_text("/runs\n/.geartrain\n")
    digests = {}
    for version in VERSIONS:
        digests[version] = seal(project / "data/rollouts", version)
        shell(project, "dvc add -q data/rollouts", "git add -A", f"git commit -qm {version}")
        shell(project, "dvc push -q --no-run-cache")
    shell(project, "git tag v2")
    promoted = project / "runs/a/models/promoted"
    (promoted / "model").mkdir(parents=True)
    (promoted / "model/weights").write_text("w")
    artifacts.write_manifest(
        promoted, stage="promotion", parameters={}, inputs={"policy": "e" * 64}, metrics={},
        ancestors={digests["v1"]: "collect"},
    )  # fmt: skip
    told = {"run_id": events.new_run_id(), "job": "tasks", "inputs": ()}
    for kind, outputs in (("START", ()), ("COMPLETE", (Data("tasks", "f" * 64),))):
        events.emit(project / ".geartrain" / LINEAGE, kind, **told, outputs=outputs)
    return project


def objects(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file() and path.parent.parent.name == "md5")


@pytest.mark.slow  # a score of commands of DVC
def test_what_a_promoted_model_needs_stays_until_a_tag_holds_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gc(*options: str) -> str:
        return say("gc", "--dir", str(project), *options)

    cache, remote = project / ".dvc/cache", tmp_path / "remote"
    before = objects(cache), objects(remote)
    with pytest.raises(UserError, match=r"collect .* and what else is marked would be lost.*Nothing was deleted"):
        gc("--cloud", "--delete")
    assert (objects(cache), objects(remote)) == before
    shell(project, "git tag v1 HEAD~1")
    told = gc("--cloud")
    assert told.count("collect") == 2, "v0 in the cache, and in the remote"
    assert "2 versions may go" in told
    assert (objects(cache), objects(remote)) == before
    gc("--cloud", "--delete")
    assert objects(cache) == objects(remote) == before[0] * 2 // 3
    assert "0 versions may go" in gc()
    shell(project, "git checkout -q v1", "dvc checkout -q")
    assert '"text": "v1"' in (project / "data/rollouts/rows.jsonl").read_text()

    shell(project, "git checkout -q v2", "dvc checkout -q", "git tag -d v1")
    stones = tmp_path / "stones"
    stones.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, str(stones))
    digest = next(iter(artifacts.read_manifest(project / "runs/a/models/promoted").ancestors))
    withdrawals.record(stones, digest, "withdraw", name="r", reason="erasure", by="ada", at="2026-03-01")
    assert "1 versions may go" in gc(), "what must be erased may be"


def test_without_lineage_nobody_knows_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARTRAIN_HOME", ".geartrain")
    start(tmp_path / "project", "../remote", git=False)
    with pytest.raises(UserError, match="no lineage there"):
        say("gc", "--dir", str(tmp_path / "project"))
