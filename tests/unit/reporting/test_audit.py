"""The audit page has what an auditor asks, says what is missing, and says when the lineage is not to be trusted."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from geartrain import withdrawals
from geartrain.artifacts import read_manifest
from geartrain.cli import app
from geartrain.supply import signing
from tests.fakes.workspace import build

RUNNER = CliRunner()


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return build(tmp_path)


def report(*arguments: str, code: int = 0) -> str:
    result = RUNNER.invoke(app, ["audit", "report", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return Path("reports/audit.html").read_text()


def test_everything_an_auditor_asks_is_there(workspace: Path) -> None:
    page = report()
    model = read_manifest(workspace / "models/promoted")
    assert model.digest in page
    for stage in ("tasks", "policy", "evaluation"):
        assert (
            read_manifest(
                workspace / {"tasks": "data", "policy": "models", "evaluation": "reports"}[stage] / stage
            ).digest
            in page
        )
    assert "Freely &amp; &lt;so&gt;" in page, "the licence of the raw data"
    assert "pkg:pypi/x@1" in page
    assert "recipe: gear_a_sgcd" in page
    assert "lower end of the interval" in page, "the gate's reasons"
    assert "Whole" in page
    assert "No signature lies beside the model" in page


def test_it_is_one_file_that_asks_for_nothing(workspace: Path) -> None:
    page = report()
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "<script" not in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)


def test_signatures_beside_the_model_are_named(workspace: Path) -> None:
    folder = workspace / "models/promoted"
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "model.sig").write_text("{}")
    page = report()  # outside of the digest, so no fault
    assert "OpenSSF model-signing" in page
    assert manifest["digest"] in page
    assert "Unchecked" in page
    keys = signing.generate(workspace / "keys")
    page = report("--key", str(keys[1]), code=3)
    assert "Broken" in page
    assert "model.sig" in page


def test_a_withdrawn_dataset_is_said(workspace: Path) -> None:
    told = {"name": "raw", "by": "ada", "at": "2026-03-01"}
    withdrawals.record(workspace / "data/withdrawn", "5" * 64, "withdraw", reason="consent <revoked>", **told)
    page = report()
    assert "withdrawn on 2026-03-01 by ada: consent &lt;revoked&gt;" in page
    assert "1 withdrawn" in page
    withdrawals.record(workspace / "data/withdrawn", "5" * 64, "lift", reason="given again", **told)
    assert "withdrawn" not in report()


def test_tampering_is_in_the_page_and_in_the_exit_code(workspace: Path) -> None:
    (workspace / "data/tasks/content.txt").write_text("other")
    page = report(code=3)
    assert "Doubtful" in page
    assert "content.txt was changed" in page


def test_a_model_that_is_not_here_has_its_lineage_all_the_same(workspace: Path) -> None:
    policy = read_manifest(workspace / "models/policy")
    for folder in ("models", "reports", "data"):
        (workspace / folder).rename(workspace / f"away-{folder}")
    page = report(f"model:policy:{policy.digest[:8]}")
    assert "The evaluation of this model is not in this workspace" in page
    assert "recipe: gear_a_sgcd" in page


def test_only_a_model_is_audited(workspace: Path) -> None:
    result = RUNNER.invoke(app, ["audit", "report", "dataset:tasks"])
    assert "no model" in str(result.exception)
