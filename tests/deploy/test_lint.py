"""Every trap is compiled by the real compiler and seen by its rule, and by no other; what is right passes."""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from kfp.compiler import Compiler

from geartrain.errors import UserError
from pipelines.compiled import Compiled, read_compiled
from pipelines.findings import explain
from pipelines.lint import RULES, lint
from pipelines.lint_values import RULES as VALUES
from tests.deploy import traps

RELEASE = {"image_without_digest"}
ALL = (*RULES, *VALUES)


def compiled(pipeline: Any, tmp_path: Path) -> Compiled:
    path = tmp_path / "trap.yaml"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler warns of its own
        Compiler().compile(pipeline, str(path))
    return read_compiled(path)


@pytest.mark.parametrize("name", traps.TRAPS)
def test_a_trap_is_seen_by_its_rule_and_by_no_other(name: str, tmp_path: Path) -> None:
    rule, build = traps.TRAPS[name]
    findings = lint(compiled(build(), tmp_path), release=rule in RELEASE)
    assert {found.rule for found in findings} == {rule}
    for line in explain(findings):
        assert line.endswith(f"[{rule}]")


def test_every_rule_has_its_trap() -> None:
    assert {rule for rule, _ in traps.TRAPS.values()} == {rule.name for rule in ALL}
    assert len({rule.name for rule in ALL}) == len(ALL)
    for rule in ALL:
        assert rule.issue
        assert rule.mend.endswith((".", ")"))


def test_every_rule_is_described(root: Path) -> None:
    guide = (root / "docs/pipeline.md").read_text().partition("## The linter")[2]
    assert set(re.findall(r"^\| `(\w+)` \| [^|]* \|$", guide, re.MULTILINE)) == {rule.name for rule in ALL}


def test_what_is_right_passes(tmp_path: Path) -> None:
    @dsl.pipeline(name="fine")
    def fine(address: str = "s3://bucket/data@sha256") -> None:
        with dsl.ExitHandler(traps._exit()):
            first = traps.good("x")
            with dsl.If(first.output == "x"):
                traps.housed(traps.model(**traps.MARKS)).set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)
        with dsl.ParallelFor(["a"], parallelism=1) as item:
            traps.good(item)
        dsl.importer(artifact_uri=address, artifact_class=dsl.Dataset)

    assert lint(compiled(fine, tmp_path)) == []


def test_our_own_pipeline_is_in_no_trap_and_would_be_seen_without_digests(compiled_pipeline: Compiled) -> None:
    assert lint(compiled_pipeline) == []
    (found,) = explain(lint(compiled_pipeline, release=True))
    assert found.partition(": ")[0].count(",") == 11  # one line for all twelve images
    assert "[image_without_digest]" in found


def test_secrets_are_told_by_name_and_place(tmp_path: Path) -> None:
    findings = lint(compiled(traps.secret_default, tmp_path))
    assert {found.what for found in findings} == {
        "parameter token holds what looks like a secret",
        "parameter options.api_key holds what looks like a secret",
    }


def test_the_command_line_checks_any_file(tmp_path: Path, root: Path) -> None:
    compiled(traps.pipeline(traps.no_retry)(), tmp_path)
    command = [sys.executable, "-m", "pipelines.compile", "--lint", str(tmp_path / "trap.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert ended.returncode == 2
    assert "step: one lost node fails the whole run (kubeflow/pipelines#14266)." in ended.stderr
    assert not (root / "trap.yaml").exists()


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [", "root: {}\n", "root: {dag: {tasks: {a: {}}}}\n"])
def test_what_is_no_pipeline_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UserError, match="not a compiled pipeline"):
        read_compiled(tmp_path / "x.yaml")
    with pytest.raises(UserError, match="no such file"):
        read_compiled(tmp_path / "y.yaml")
