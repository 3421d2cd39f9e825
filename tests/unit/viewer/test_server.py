"""The server over a real socket: what it answers, what it refuses, what it lets a browser do."""

import json
import threading

import pytest

from geartrain.errors import UserError
from geartrain.viewer.answers import Answers
from geartrain.viewer.server import Server, is_allowed
from tests.fakes.long_run import HOSTILE, write_long_run


def test_a_run_tells_its_stages_alarms_and_curves(get):
    status, _, found = get("/api/run?run=runs/long")
    assert status == 200
    assert [stage["state"] for stage in found["stages"]].count("running") == 1
    (policy,) = [stage for stage in found["stages"] if stage["name"] == "policy"]
    assert policy["progress"] == {"label": "policy", "done": 12, "total": 12, "status": "success 0.41", "left": None}
    assert found["recipe"] == "fixed_weights"
    assert found["seen"] == 12
    xs, ys = found["curves"]["val_greedy"]
    assert xs == [0, 5, 10], "measured after so many updates, the first before any"
    assert ys[0] == 0.35
    assert found["curves"]["success"][0] == list(range(12))
    assert all(3000 > rate > 2000 for rate in found["curves"]["tokens_played"][1])
    keys = {series["key"] for group in found["layout"] for panel in group["panels"] for series in panel["series"]}
    assert set(found["curves"]) <= keys


def test_who_has_seen_some_iterations_is_sent_the_others(tmp_path):
    folder = write_long_run(tmp_path / "run", iterations=3, tasks=1)
    answers = Answers(folder)
    first = answers.ask("run", {"run": "."})
    (path,) = (folder / ".geartrain/live").glob("*.jsonl")
    lines = path.read_text().splitlines()
    repeated = json.loads([line for line in lines if '"kind": "iteration"' in line][1])
    repeated["record"]["kl"] = 9.0
    after = {**repeated, "index": 3, "record": {**repeated["record"], "iteration": 3, "kl": 7.0}}
    with path.open("a") as file:  # a resumed run did the second again, and is cut short in the fifth
        file.write(f'{json.dumps(repeated)}\n{json.dumps(after)}\n{{"time": 1, "ki')
    second = answers.ask("run", {"run": ".", "after": str(first["seen"]), "of": first["of"]})
    assert not second["fresh"]
    assert second["curves"]["kl"] == ([1.0, 3.0], [9.0, 7.0])
    assert "layout" not in second
    third = answers.ask("run", {"run": ".", "after": str(second["seen"]), "of": "another record"})
    assert third["fresh"]
    assert third["curves"]["kl"][0] == [0.0, 1.0, 2.0, 3.0]


def test_the_list_says_of_every_run_how_it_is(get):
    _, _, found = get("/api/runs")
    states = {run["name"]: run["state"] for run in found["runs"]}
    assert states == {"runs/long": "running", "runs/other": "failed", "runs/done": "done"}
    assert found["runs"][0]["name"] == "runs/long", "what is at work comes first"
    (done,) = [run for run in found["runs"] if run["name"] == "runs/done"]
    assert done["promoted"] is True
    assert done["gain"]["estimate"] == pytest.approx(0.27)


def test_a_finished_run_without_a_live_record_has_its_curves_too(get):
    _, _, found = get("/api/run?run=runs/done")
    assert {stage["state"] for stage in found["stages"]} == {"done"}
    assert {stage["name"]: stage["seconds"] for stage in found["stages"]}["policy"] == 236.8
    assert found["curves"]["success"][0] == list(range(30))
    _, _, results = get("/api/results?run=runs/done")
    assert results["verdict"]["promoted"] is True
    assert {row["split"] for row in results["evaluation"]} == {"test", "ood", "paraphrase"}
    assert results["settings"]["policy"]["siblings"] == 8


def test_lineage_is_drawn_without_styles_that_the_policy_of_the_page_forbids(get):
    _, _, found = get("/api/lineage?run=runs/done")
    assert found["of"] == "promotion"
    assert found["drawing"].startswith("<svg")
    assert "style=" not in found["drawing"]
    assert {"environment.source", "policy"} <= {node["name"] for node in found["nodes"]}
    assert get("/api/lineage?run=runs/long")[2]["nodes"] == []


def test_two_runs_are_compared_by_settings_curves_and_evaluation(get):
    _, _, found = get("/api/compare?run=runs/long&other=runs/other")
    differ = {one["name"]: (one["first"], one["second"]) for one in found["settings"]}
    assert differ == {"seed": (0, 1), "policy.recipe": ("fixed_weights", "gigpo")}
    assert [len(side["curves"]["success"][0]) for side in found["sides"]] == [12, 6]
    assert found["same_tasks"] is None
    assert get("/api/compare?run=runs/done&other=runs/done")[2]["same_tasks"] is True


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("iteration=3", lambda row: row["iteration"] == 3),
        ("iteration=all&success=yes&family=ranking", lambda row: row["success"] and row["family"] == "ranking"),
        ("iteration=all&success=no&trained=yes", lambda row: not row["success"] and row["advantage"] is not None),
        ("iteration=all&trained=no", lambda row: row["advantage"] is None),
        ("iteration=all&task=train-00", lambda row: "train-00" in row["task_id"]),
    ],
)
def test_episodes_are_filtered(query, expected, get):
    _, _, found = get(f"/api/episodes?run=runs/long&limit=200&{query}")
    _, _, whole = get("/api/episodes?run=runs/long&limit=200&iteration=all")
    assert found["rows"]
    assert all(map(expected, found["rows"]))
    assert found["total"] < whole["total"] == 600


def test_episodes_come_by_the_page_in_one_order(get):
    pages = [
        get(f"/api/episodes?run=runs/long&iteration=all&sort=advantage&offset={offset}&limit=150")[2]["rows"]
        for offset in range(0, 600, 150)
    ]
    rows = [row for page in pages for row in page]
    assert len({(row["iteration"], row["place"]) for row in rows}) == 600
    known = [row["advantage"] for row in rows if row["advantage"] is not None]
    assert known == sorted(known, reverse=True)
    assert rows[-1]["advantage"] is None
    assert get("/api/episodes?run=runs/long")[2]["iteration"] == 11, "the newest, if nothing else is asked for"
    assert len(get("/api/episodes?run=runs/long&limit=99999")[2]["rows"]) == 50
    assert len(get("/api/episodes?run=runs/long&iteration=all&limit=99999")[2]["rows"]) == 200


def test_an_episode_has_its_turns_their_credit_and_its_siblings(get):
    _, _, found = get("/api/episode?run=runs/long&iteration=0&place=0")
    assert found["turns"][0]["action"] == HOSTILE.replace("\u202e", "\\u202e"), "what hides or reorders is spelt out"
    assert [one["sibling"] for one in found["siblings"]] == [0, 1, 2, 3, 4]
    assert set(found["channels"]) == {"verified", "learned"}
    for turn in found["turns"]:
        assert turn["credit"] == pytest.approx(found["advantage"] * turn["weight"], rel=1e-4)
        assert set(turn["grains"]) == {"global", "step", "token"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/run?run=nowhere", 404),
        ("/api/run?run=../runs/long", 404),
        ("/api/run?run=runs/empty", 404),
        ("/api/run", 404),
        ("/api/nothing", 404),
        ("/api/episode?run=runs/long&iteration=99&place=0", 404),
        ("/api/episode?run=runs/long&iteration=0&place=50", 404),
        ("/api/episode?run=runs/long&iteration=-1&place=0", 400),
        ("/api/episodes?run=runs/long&limit=1e9", 400),
        ("/api/episodes?run=runs/long&sort=secret", 400),
        ("/api/episodes?" + "&".join(f"a{n}=1" for n in range(50)), 400),
        ("/secret.txt", 404),
        ("/../secret.txt", 404),
        ("/%2e%2e/secret.txt", 404),
        ("/page.css", 404),
        ("/__init__.py", 404),
        ("//etc/passwd", 404),
        ("/api/../../secret.txt", 404),
    ],
)
def test_what_is_not_there_or_not_asked_rightly_is_said_and_nothing_else(path, status, get):
    found, _, body = get(path)
    assert found == status
    assert "not yours" not in str(body)
    assert "Traceback" not in str(body)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(method, get):
    assert get("/api/runs", method)[0] == 501


@pytest.mark.parametrize("path", ["/", "/style.css", "/app.js", "/chart.js", "/icon.svg", "/api/runs"])
def test_the_page_may_load_its_own_files_alone(path, get):
    status, headers, body = get(path)
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers
    assert "https://" not in str(body)
    assert get(path, "HEAD")[2] == ""


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost:6577", True),
        ("127.0.0.1", True),
        ("[::1]:80", True),
        ("192.168.1.7:6577", True),
        ("box.example:6577", True),
        ("BOX.example", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example@127.0.0.1", True),  # a browser sends no such host; the address is what it would call
        ("", False),
        ("[::1", False),
    ],
)
def test_a_name_that_was_pointed_here_gets_nothing(host, allowed, get):
    assert is_allowed(host, {"box.example"}) is allowed
    assert (get("/api/runs", Host=host)[0] == 200) is allowed


def test_many_may_ask_at_once_while_a_run_writes(server, get, fleet):
    (path,) = (fleet / "runs/long/.geartrain/live").glob("*.jsonl")
    line = [text for text in path.read_text().splitlines() if '"kind": "iteration"' in text][-1]
    answers: list[int] = []

    def ask():
        for question in ("run?run=runs/long", "episodes?run=runs/long&iteration=all", "runs") * 4:
            answers.append(get(f"/api/{question}")[0])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    with path.open("a") as file:
        for _ in range(50):
            file.write(line + "\n")
            file.flush()
    for thread in threads:
        thread.join()
    assert answers == [200] * 72


def test_a_port_that_is_taken_is_said(server, fleet):
    with pytest.raises(UserError, match=r"cannot listen there .* --port 0 takes any"):
        Server(("127.0.0.1", server.server_port), Answers(fleet))


def test_a_folder_without_a_workspace_is_refused(tmp_path):
    with pytest.raises(UserError, match="no workspace here or below"):
        Answers(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        Answers(tmp_path / "nowhere")
