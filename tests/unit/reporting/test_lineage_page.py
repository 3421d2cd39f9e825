"""A lineage graph as tree, JSON, Graphviz and page: all of it is there, and nothing of it is read as markup."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from geartrain.cli import app
from geartrain.lineage import events
from geartrain.lineage.events import Data
from geartrain.lineage.graph import Graph, Node
from geartrain.reporting import flow

RUNNER = CliRunner()
RAW = Data("environment.source", "1" * 64, "source", "data/raw/<x>.json", "MIT & co")
TASKS = Data("tasks", "2" * 64, "dataset", "data/tasks")
POLICY = Data("policy", "3" * 64, "model", "models/policy")


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for stage, inputs, output, values in (("tasks", [RAW], TASKS, {}), ("policy", [TASKS], POLICY, {"promoted": 1.0})):
        told = {"run_id": events.new_run_id(), "job": stage, "inputs": inputs}
        events.emit(Path(".geartrain/lineage"), "START", **told, outputs=())
        facets = {"metrics": {"values": values}}
        events.emit(Path(".geartrain/lineage"), "COMPLETE", **told, outputs=[output], facets=facets)


def run(*arguments: str, group: str = "lineage") -> str:
    result = RUNNER.invoke(app, [group, *arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_the_tree_goes_from_the_model_to_the_raw_data() -> None:
    lines = run("model:policy", "--up").splitlines()
    names = [" ".join(re.sub(r"[^\w .]", "", line).split()[:2]) for line in lines[1:]]
    assert names == ["model policy", "run policy", "dataset tasks", "run tasks", "source environment.source"]
    assert [len(line) - len(line.lstrip(" │└├─")) for line in lines[1:]] == [4, 8, 12, 16, 20]
    assert "promoted" in lines[1]
    assert "licence MIT & co" in lines[-1]


def test_show_may_be_written_out_and_both_ways_are_the_default() -> None:
    assert run("show", "dataset:2222") == run("dataset:2222")
    assert "What it was made from" in run("dataset:2222")
    assert "What was made from it" in run("dataset:2222")


def test_json_has_every_node_and_arrow() -> None:
    record = json.loads(run("model:policy", "--up", "--format", "json"))
    assert list(record) == ["up"]
    assert {node["name"] for node in record["up"]["nodes"]} == {"policy", "tasks", "environment.source"}
    assert len(record["up"]["arrows"]) == 4


def test_dot_is_quoted() -> None:
    text = run("dataset:1111", "--down", "--format", "dot")
    assert text.startswith("digraph lineage {")
    assert text.count(" -> ") == 4


def test_the_page_is_whole_and_asks_for_nothing() -> None:
    page = run("model:policy", "--format", "html")
    assert "data/raw/&lt;x&gt;.json" in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)
    assert page.count("<svg") == 2


def test_a_page_is_for_the_keyboard_and_for_screen_readers() -> None:
    for page in (run("model:policy", "--format", "html"), _audit()):
        assert '<html lang="en">' in page
        assert page.count("<h1") == page.count("<main") == 1
        assert re.findall(r"<th(?! scope)", page) == []
        scrolled = re.findall(r'<div class="scroll"[^>]*>', page)
        assert scrolled
        assert all('tabindex="0" role="region" aria-label="' in each for each in scrolled), "what scrolls is reached"
        assert all('role="img" aria-label="' in each for each in re.findall(r"<svg[^>]*>", page))


def test_names_of_others_are_text_wherever_they_are_shown() -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\n\x1b[31m"
    raw = Data(evil, "4" * 64, "source", evil, evil, evil)
    told = {"run_id": events.new_run_id(), "job": "policy", "inputs": [raw, TASKS]}
    events.emit(Path(".geartrain/lineage"), "START", **told, outputs=())
    facets = {"parameters": {"policy": {"recipe": evil}}, "error": {"type": "X", "message": evil}}
    output = Data("policy", "5" * 64, "model", "models/policy")
    events.emit(Path(".geartrain/lineage"), "COMPLETE", **told, outputs=[output], facets=facets)
    for page in (run("model:policy", "--format", "html"), _audit()):
        assert "&lt;script&gt;" in page
        assert "<script" not in page
        assert "<img" not in page
        assert not re.search(r'(?:src|href)="(?!#)', page)
    for shown in (run("model:policy"), run("impact", "dataset:4444")):
        assert "\\n\\x1b[31m" in shown
        assert "\x1b" not in shown


def _audit() -> str:
    run("report", "model:policy", group="audit")
    return Path("reports/audit.html").read_text()


def test_impact_names_the_promoted_model_and_the_way_to_it() -> None:
    text = run("impact", "dataset:1111")
    assert "environment.source → (tasks) → tasks → (policy) → policy" in text
    assert "1 model reached, 1 of them promoted" in text
    (row,) = json.loads(run("impact", "dataset:1111", "--json"))
    assert (row["digest"], row["promoted"]) == (POLICY.digest, True)


def test_impact_says_what_it_cannot_know() -> None:
    """A run that has said no end may have made a model; a run's own workspace may know of more."""
    asked = ["lineage", "impact", "dataset:1111"]
    assert RUNNER.invoke(app, asked).stderr == ""
    told = {"run_id": events.new_run_id(), "job": "critic", "inputs": [TASKS]}
    events.emit(Path(".geartrain/lineage"), "START", **told, outputs=())
    shutil.copytree(".geartrain", "runs/copy/.geartrain")
    assert re.fullmatch(r"critic [0-9a-f-]{12} has said no end: .* not known here\n", RUNNER.invoke(app, asked).stderr)
    events.emit(Path(".geartrain/lineage"), "ABORT", **told, outputs=())
    assert RUNNER.invoke(app, asked).stderr == ""
    events.emit(Path("runs/copy/.geartrain/lineage"), "COMPLETE", **told, outputs=[Data("critic", "7" * 64, "model")])
    found = RUNNER.invoke(app, asked)
    assert "1 model reached" in found.stdout
    assert "`geartrain lineage pull runs/copy` brings it" in found.stderr
    run("pull", "runs/copy")
    found = RUNNER.invoke(app, asked)
    assert ("2 models reached" in found.stdout, found.stderr) == (True, "")


def test_help_teaches() -> None:
    for command in ("show", "impact", "verify", "export", "pull"):
        assert f"geartrain lineage {'model:' if command == 'show' else command}" in run(command, "--help")


def test_an_unknown_form_and_an_unknown_thing_are_mended() -> None:
    for arguments in (["policy", "--format", "pdf"], ["model:polcy"]):
        result = RUNNER.invoke(app, ["lineage", *arguments])
        assert type(result.exception).__name__ == "UserError"


def big(width: int, depth: int) -> Graph:
    nodes = {
        f"{d}-{w}": Node("artifact", f"{d}-{w}", f"set {w}", type="dataset") for d in range(depth) for w in range(width)
    }
    arrows = [(f"{d}-{w}", f"{d + 1}-{(w * 7 + d) % width}") for d in range(depth - 1) for w in range(width)]
    return Graph(("0-0",), nodes, tuple(arrows), {})


def test_a_large_graph_is_drawn_up_to_a_limit_and_boxes_do_not_overlap() -> None:
    svg = str(flow.draw(big(12, 30)))
    boxes = [
        tuple(map(float, box))
        for box in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    ]
    assert len(boxes) == flow.MOST
    for n, (x, y, w, h) in enumerate(boxes):
        for a, b, c, d in boxes[:n]:
            assert x >= a + c or a >= x + w or y >= b + d or b >= y + h


def test_a_circle_is_drawn_too() -> None:
    nodes = {name: Node("artifact", name, name, type="dataset") for name in "ab"}
    assert "<svg" in flow.draw(Graph(("a",), nodes, (("a", "b"), ("b", "a")), {}))
