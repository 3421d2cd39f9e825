"""The index answers what made what, follows the journal, and is made anew when the past has changed."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from geartrain.errors import UserError
from geartrain.lineage import events, index, journal
from geartrain.lineage.events import Data
from geartrain.lineage.index import Index, open_all, open_index
from tests.fakes.histories import digest, write_history

RAW = Data("environment.source", digest("raw"), "source", "data/raw/x.json", "MIT", "pkg:pypi/x@1")
TASKS = Data("tasks", digest("tasks"), "dataset", "data/tasks")
WARM = Data("warm_start", digest("warm"), "model", "models/warm_start")
POLICY = Data("policy", digest("policy"), "model", "models/policy")
BETTER = Data("policy", digest("better"), "model", "models/policy")
TABLES = Data("evaluation", digest("tables"), "report", "reports/evaluation")
PROMOTED = Data("promotion", digest("promoted"), "model", "models/promoted")


def run(
    home: Path, stage: str, inputs: list[Data], output: Data | None, *, end: str = "COMPLETE", **values: float
) -> str:
    """Record a whole run; without an output it is `end`ed otherwise, or not at all."""
    run_id = events.new_run_id()
    told = {"run_id": run_id, "job": stage, "inputs": inputs}
    events.emit(home / "lineage", "START", **told, outputs=())  # type: ignore[arg-type]
    if end:
        facets = {"metrics": {"values": values}} if end == "COMPLETE" else {"error": {"type": "X", "message": "why"}}
        outputs = [output] if output else []
        events.emit(home / "lineage", end, **told, outputs=outputs, facets=facets)  # type: ignore[arg-type]
    return run_id


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose pipeline ran once, and whose policy was trained again, once in vain."""
    run(tmp_path, "tasks", [RAW], TASKS)
    run(tmp_path, "warm_start", [TASKS], WARM)
    run(tmp_path, "policy", [TASKS, WARM], POLICY)
    run(tmp_path, "policy", [TASKS, WARM], None, end="FAIL")
    run(tmp_path, "policy", [TASKS, WARM], BETTER)
    run(tmp_path, "evaluation", [TASKS, BETTER], TABLES)
    run(tmp_path, "promotion", [BETTER, TABLES], PROMOTED, promoted=1.0)
    return tmp_path


def test_what_made_this_model(home: Path) -> None:
    graph = open_index(home).up(BETTER.digest)
    assert [(node.kind, node.name) for node in graph if node.kind == "artifact"] == [
        ("artifact", "policy"), ("artifact", "tasks"), ("artifact", "warm_start"), ("artifact", "environment.source")
    ]  # fmt: skip
    assert [node.name for node in graph if node.kind == "run"] == ["policy", "tasks", "warm_start"]
    source = graph.nodes[RAW.digest]
    assert (source.type, source.licence, source.origin, source.folder) == (
        "source", "MIT", "pkg:pypi/x@1", "data/raw/x.json"
    )  # fmt: skip


def test_which_models_did_this_data_reach_promoted_first_and_how(home: Path) -> None:
    reached = open_index(home).models_reached(f"sha256:{RAW.digest}")
    assert [(found.model.name, found.model.promoted) for found in reached] == [
        ("promotion", True), ("policy", True), ("policy", False), ("warm_start", False)
    ]  # fmt: skip
    assert [node.name for node in reached[1].way] == ["environment.source", "tasks", "tasks", "policy", "policy"]


def test_a_gate_that_stayed_shut_leaves_no_model(home: Path) -> None:
    shut = Data("promotion", digest("shut"), "model", "models/promoted")
    run(home, "promotion", [POLICY, TABLES], shut, promoted=0.0)
    index = open_index(home)
    assert index.resolve(shut.digest).type == "report"
    assert not index.resolve(POLICY.digest).promoted


def test_what_was_not_promoted_is_told_with_its_decision_and_its_candidate(tmp_path: Path) -> None:
    run(tmp_path, "policy", [], POLICY)
    shut = Data("promotion", digest("shut"), "model", "models/promoted")
    run(tmp_path, "promotion", [POLICY], shut, promoted=0.0)
    with pytest.raises(
        UserError, match=f"no model through here.*report:{shut.digest[:12]}.*policy:{POLICY.digest[:12]}"
    ):
        open_index(tmp_path).resolve("model:promoted")


def test_a_thing_of_another_kind_says_so(home: Path) -> None:
    with pytest.raises(UserError, match=r"model:tasks: is a dataset .* write dataset:tasks"):
        open_index(home).resolve("model:tasks")


@pytest.mark.parametrize("text", ["model:%", "model:p_licy", "%"])
def test_a_name_is_no_pattern(text: str, home: Path) -> None:
    with pytest.raises(UserError, match="nothing is called so"):
        open_index(home).resolve(text)


def test_a_failed_run_is_in_the_graph_and_leads_nowhere(home: Path) -> None:
    graph = open_index(home).down(WARM.digest)
    failed = [node for node in graph if node.state == "FAIL"]
    assert [node.error for node in failed] == ["why"]
    assert not any(source == failed[0].id for source, _ in graph.arrows)


@pytest.mark.parametrize(
    "text",
    [
        "model:policy", "model:policy:latest", f"model:policy:{BETTER.digest[:6]}", f"dataset:{BETTER.digest[:8]}",
        f"sha256:{BETTER.digest}", BETTER.digest, f"model:{BETTER.digest[:8]}", "policy",
    ],
)  # fmt: skip
def test_names_are_forgiving(text: str, home: Path) -> None:
    assert open_index(home).resolve(text).id == BETTER.digest


def test_the_promoted_model_is_found_by_its_folder(home: Path) -> None:
    assert open_index(home).resolve("model:promoted").id == PROMOTED.digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model:polciy", "There are environment.source, evaluation, policy"),
        ("model:policy:ffff", "versions of policy, newest first"),
        ("dataset:0000000", "no run has read or written such a digest"),
        ("run:ffffffff", "no run has such an id"),
        ("table:x", "write model:NAME"),
        ("xyz", "nothing is called so"),
    ],
)
def test_what_is_not_there_is_said(text: str, says: str, home: Path) -> None:
    with pytest.raises(UserError, match=says):
        open_index(home).resolve(text)


def test_a_beginning_that_fits_several_lists_them(home: Path) -> None:
    index = open_index(home)
    with pytest.raises(UserError, match="may be any of"):
        index.resolve(f"run:{index.runs()[0].id[:6]}")  # ids begin with the time


def test_a_whole_pipeline_run_is_asked_for_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = events.new_run_id()
    monkeypatch.setenv("GEARTRAIN_RUN_ID", parent)
    run(tmp_path, "tasks", [RAW], TASKS)
    run(tmp_path, "warm_start", [TASKS], WARM)
    index = open_index(tmp_path)
    graph = index.up(index.resolve(f"run:{parent}"))
    assert {node.name for node in graph if node.kind == "run"} == {"tasks", "warm_start"}
    assert RAW.digest in graph.nodes


def test_it_follows_the_journal(home: Path) -> None:
    open_index(home).close()
    late = Data("critic", digest("critic"), "model", "models/critic")
    run(home, "critic", [WARM], late)
    assert late.digest in {found.model.digest for found in open_index(home).models_reached(RAW.digest)}


def test_a_run_that_was_taken_for_lost_and_finished_has_finished(home: Path) -> None:
    started = run(home, "critic", [WARM], None, end="")
    events.abort_unfinished(home / "lineage", "lost")
    assert [node.id for node in open_index(home).runs("ABORT")] == [started]
    told = {"run_id": started, "job": "critic", "inputs": [WARM]}
    events.emit(home / "lineage", "COMPLETE", **told, outputs=[Data("critic", digest("c"), "model")])  # type: ignore[arg-type]
    assert open_index(home).runs("ABORT") == []


def test_a_changed_past_is_read_again(home: Path) -> None:
    open_index(home).close()
    (path,) = (home / "lineage/journal").glob("*.ndjson")
    path.write_bytes(path.read_bytes().replace(RAW.digest.encode(), b"f" * 64))
    index = open_index(home)
    assert index.resolve("f" * 64).name == RAW.name
    with pytest.raises(UserError):
        index.resolve(RAW.digest)


def test_a_file_that_went_is_forgotten(home: Path) -> None:
    other = home / "other"
    run(other, "critic", [], Data("critic", digest("critic"), "model"))
    (home / "lineage/pulled").mkdir()
    for path in (other / "lineage/journal").iterdir():
        path.rename(home / "lineage/pulled" / path.name)
    assert open_index(home).resolve("critic").name == "critic"
    for path in (home / "lineage/pulled").iterdir():
        path.unlink()
    with pytest.raises(UserError):
        open_index(home).resolve("critic")


def test_a_harmed_index_is_made_anew(home: Path) -> None:
    open_index(home).close()
    (home / "lineage/index.sqlite").write_bytes(b"no database" * 1000)
    assert open_index(home).resolve("policy").id == BETTER.digest


@pytest.mark.parametrize("filled", [b"\xff", b"\0"])
def test_an_index_with_a_harmed_page_is_made_anew(filled: bytes, home: Path) -> None:
    """Whichever page it is: the answer comes, and is the right one."""
    open_index(home).close()
    place = home / "lineage/index.sqlite"
    whole = place.read_bytes()
    for begin in range(0, len(whole), 4096):
        place.write_bytes(whole[:begin] + filled * 4096 + whole[begin + 4096 :])
        with closing(open_index(home)) as found:
            assert found.models_reached(RAW.digest)[0].model.name == "promotion"
            assert found.resolve("policy").id == BETTER.digest
    for size in (1, 4096, 5000, len(whole) - 4096):
        place.write_bytes(whole[:size])
        with closing(open_index(home)) as found:
            assert found.resolve("policy").id == BETTER.digest


def test_an_unended_line_waits_for_its_end(home: Path) -> None:
    (path,) = (home / "lineage/journal").glob("*.ndjson")
    whole = path.read_bytes()
    cut = whole.rindex(b'{"eventTime"')
    path.write_bytes(whole[: cut + 40])
    before = open_index(home).counts()
    path.write_bytes(whole)
    after = open_index(home)
    assert (before["runs"], after.counts()["runs"]) == (7, 7)
    assert after.resolve("promoted").promoted


def test_without_lineage_one_is_told_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="geartrain lineage pull"):
        open_index(tmp_path)


def test_what_a_run_said_is_found(home: Path) -> None:
    index = open_index(home)
    (failed,) = index.runs("FAIL")
    (event,) = index.events(failed.id)
    assert events.error_of(event)["message"] == "why"
    assert journal.CHAIN in event["run"]["facets"]


def brute_force(home: Path, start: str) -> set[str]:
    """Models below some data, by going through all events until nothing is new."""
    told = [event for event in events.read_events(home / "lineage") if event["eventType"] == "COMPLETE"]
    reached = {start}
    while True:
        more = {
            made
            for event in told
            if reached & set(events.digests(event, "inputs").values())
            for made in events.digests(event, "outputs").values()
        }
        if more <= reached:
            return reached - {start}
        reached |= more


def test_it_answers_as_going_through_all_events_does(tmp_path: Path) -> None:
    raw = write_history(tmp_path / "lineage", runs=300, datasets=60, models=60)
    index = open_index(tmp_path)
    models = {node.digest for node in index.artifacts() if node.type == "model"}
    for start in raw:
        found = {reached.model.digest for reached in index.models_reached(start)}
        assert found == brute_force(tmp_path, start) & models


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_runs_are_answered_in_a_moment(tmp_path: Path) -> None:
    raw = write_history(tmp_path / "lineage")
    started = time.process_time()
    open_index(tmp_path).close()
    assert time.process_time() - started < 6, "a third of the speed that benchmarks/lineage_index.py holds it to"
    started = time.process_time()
    index = open_index(tmp_path)
    reached = index.models_reached(raw[0])
    made_of = index.up(reached[-1].model.digest)
    assert time.process_time() - started < 3
    assert index.counts()["runs"] == 10_000
    assert raw[0] in made_of.nodes


def test_an_index_that_cannot_be_written_is_made_in_memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "lineage/index.sqlite").mkdir()
    index: Index = open_index(home)
    assert index.resolve("policy").id == BETTER.digest


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_an_index_that_another_process_writes_to_keeps_nobody_from_an_answer(
    lock: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is up to date is read beside a writer; else the files are read, and that is said."""
    monkeypatch.setattr(index, "PATIENCE_SECONDS", 0.01)
    open_index(home).close()
    with closing(sqlite3.connect(home / "lineage/index.sqlite", isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        with closing(open_index(home)) as found:
            known = found.counts()
        assert ("another process writes to it" in capsys.readouterr().err) == (lock == "EXCLUSIVE")
        tell_of_one_more(home)
        with closing(open_index(home)) as found:
            assert found.counts()["runs"] == known["runs"] + 1
        assert "another process writes to it" in capsys.readouterr().err
    with closing(open_index(home)) as found:
        assert found.counts()["runs"] == known["runs"] + 1


def tell_of_one_more(home: Path) -> None:
    """Tell of one run more."""
    events.emit(home / "lineage", "START", run_id=events.new_run_id(), job="policy", inputs=(), outputs=())


@pytest.mark.parametrize("harm", ["cut", "removed", "removed with others left", "head"])
def test_an_answer_from_a_journal_that_was_cut_says_so(
    harm: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is answered then may leave out a model: nobody is to take it for whole."""
    open_index(home).close()
    assert capsys.readouterr().err == ""
    (path,) = (home / "lineage/journal").glob("*.ndjson")
    if harm == "cut":
        path.write_bytes(path.read_bytes()[: -len(path.read_bytes().splitlines(keepends=True)[-1])])
    elif harm == "head":
        path.with_name(f"{path.name[:16]}.head").write_text("{")
    else:
        path.unlink()
        if harm == "removed with others left":
            tell_of_one_more(home)
            assert capsys.readouterr().err == ""
    named = f"events are missing ({path.name if harm != 'head' else f'{path.name[:16]}.head'})"
    assert [index.folder for index in open_all([home])] == ([] if harm == "removed" else [home / "lineage"])
    assert named in capsys.readouterr().err
    if harm == "removed":
        with pytest.raises(UserError, match="no lineage there"):
            open_index(home)
        assert named in capsys.readouterr().err
