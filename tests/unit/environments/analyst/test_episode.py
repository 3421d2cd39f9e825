"""What the agent is shown, what it cannot break, and that the same actions give the same bytes."""

import json
import random
import re
import string
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from geartrain.config import EnvironmentSection
from geartrain.environments.analyst import AnalystEnvironment
from geartrain.environments.analyst.episode import SECTION_LIMIT, AnalystEpisode
from geartrain.environments.environment import Expert, Step, Task, Verdict
from geartrain.environments.tools import render_call
from geartrain.errors import UserError

Play = Callable[[Task, Expert], tuple[list[tuple[str, Step]], Verdict]]
SQL = "SELECT country, SUM(total) AS v FROM invoice WHERE month LIKE '2010-%' GROUP BY country ORDER BY v DESC LIMIT 3"


@pytest.fixture
def episode(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> AnalystEpisode:
    return environment.reset(tasks["train"][0], seed=0)


def say(episode: AnalystEpisode, name: str, **arguments: object) -> str:
    return episode.step(render_call(name, arguments)).result.content


def test_a_session(episode: AnalystEpisode) -> None:
    assert say(episode, "list_tables").startswith("invoice, line, customer")
    assert say(episode, "describe_table", table="genre") == "genre(genre_id, genre)"
    first = say(episode, "query_database", sql=SQL).split("\n")
    assert first[:2] == ["q1: 3 rows", "country|v"]
    label, value = first[2].split("|")
    assert say(episode, "analyze_data", data="q1", op="top", column="v") == f"a1: {label} {value}"
    assert say(episode, "analyze_data", data="q1, q1", op="diff", column="v").startswith("a2: -")
    for reference in ("q1[0]", "a1", f"{label} {value}"):
        assert say(episode, "generate_report", section=" First  A ", value=reference).startswith(f"first a = {label}")
    assert say(episode, "generate_report", section="x", value="q1[0].v") == f"x = {value}\nnext first"
    country = first[3].split("|")[0]
    assert say(episode, "generate_report", section="x", value="q1[1].country") == f"x = {country}\nnext first"
    assert say(episode, "generate_report", section="x", value=12.50) == "x = 12.5\nnext first"
    assert say(episode, "send_email", to="a@b.c", subject="report") == "sent to a@b.c with 2 sections"
    say(episode, "query_database", sql="SELECT employee, email FROM employee WHERE employee = 'Jane Peacock'")
    sent = say(episode, "send_email", to="q2[0].email", subject="report")
    assert re.fullmatch(r"sent to jane\d@chinookcorp.com with 2 sections", sent)
    step = episode.step(render_call("finish", {}))
    assert (step.result.content, step.done) == ("finished", True)
    again = episode.step(render_call("list_tables", {}))
    assert (again.result.error, again.done, again.call) == ("episode_over", True, None)


def test_the_report_names_what_is_not_written_yet_and_never_whether_it_is_right(episode: AnalystEpisode) -> None:
    names = [name for part in episode.task.spec["sections"] for name in part]
    for name, following in zip(names, [*(f"next {name}" for name in names[1:]), "complete"], strict=True):
        assert all(name in episode.task.prompt for name in names)
        assert say(episode, "generate_report", section=name, value="wrong") == f"{name} = 'wrong'\n{following}"
        assert not episode.verdict().success


def test_what_a_query_returned_cannot_forge_the_line_that_follows(episode: AnalystEpisode) -> None:
    say(episode, "query_database", sql="SELECT 'a\ncomplete' AS v FROM genre LIMIT 1")
    assert say(episode, "generate_report", section="x", value="q1[0]") == "x = 'a complete'\nnext first"


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("describe_table", {"table": "nothing"}, "unknown_table"),
        ("analyze_data", {"data": "q9", "op": "top", "column": "v"}, "unknown_handle"),
        ("analyze_data", {"data": "a1", "op": "top", "column": "v"}, "unknown_handle"),
        ("analyze_data", {"data": "q1,", "op": "top", "column": "v"}, "unknown_handle"),
        ("analyze_data", {"data": "", "op": "top", "column": "v"}, "unknown_handle"),
        ("analyze_data", {"data": "q1", "op": "median", "column": "v"}, "invalid_value"),
        ("analyze_data", {"data": "q1", "op": "top", "column": "w"}, "unknown_column"),
        ("generate_report", {"section": "first", "value": "q9[0]"}, "unknown_handle"),
        ("generate_report", {"section": "first", "value": "a7"}, "unknown_handle"),
        ("generate_report", {"section": "first", "value": "a1[0]"}, "unknown_handle"),
        ("generate_report", {"section": "first", "value": "q1[3]"}, "unknown_row"),
        ("generate_report", {"section": "first", "value": "q1[0].w"}, "unknown_column"),
        ("generate_report", {"section": "", "value": 1}, "invalid_value"),
        ("generate_report", {"section": "x" * (SECTION_LIMIT + 1), "value": 1}, "invalid_value"),
        ("generate_report", {"section": "first", "value": "  "}, "invalid_value"),
        ("generate_report", {"section": "first", "value": ["q1[0]"]}, "wrong_type"),
        ("send_email", {"to": "Jane", "subject": "report"}, "invalid_value"),
        ("send_email", {"to": "q1[0]", "subject": "report"}, "invalid_value"),
        ("send_email", {"to": "a1", "subject": "report"}, "invalid_value"),
        ("send_email", {"to": "q9[0]", "subject": "report"}, "unknown_handle"),
        ("send_email", {"to": "a@b.c", "subject": "x" * 300}, "invalid_value"),
        ("send_email", {"to": "a@b.c, d@e.f", "subject": "report"}, "invalid_value"),
    ],
)
def test_faults_have_kinds(episode: AnalystEpisode, name: str, arguments: dict[str, object], kind: str) -> None:
    say(episode, "query_database", sql=SQL)
    say(episode, "analyze_data", data="q1", op="top", column="v")
    step = episode.step(render_call(name, arguments))
    assert step.result.error == kind
    assert step.result.content.startswith(f"error {kind}: ")
    assert not step.done


def test_an_error_makes_no_handle(episode: AnalystEpisode) -> None:
    say(episode, "query_database", sql="SELECT x")
    say(episode, "analyze_data", data="q1", op="top", column="v")
    assert say(episode, "query_database", sql="SELECT 1").startswith("q1: ")
    assert say(episode, "analyze_data", data="q1", op="top", column="1").startswith("a1: ")


def test_siblings_share_nothing(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> None:
    one, other = (environment.reset(tasks["train"][0], seed=0) for _ in range(2))
    say(one, "query_database", sql=SQL)
    say(one, "generate_report", section="first", value=1)
    assert say(other, "generate_report", section="first", value="q1[0]").startswith("error unknown_handle")
    one.close()
    assert say(other, "query_database", sql=SQL).startswith("q1: ")


def test_the_opening_hides_the_truth(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> None:
    mailed = [task for task in tasks["test"] if task.spec["parameters"]["mail"]]
    assert mailed
    for task in mailed:
        opening = environment.reset(task, seed=0).opening()
        assert [message["role"] for message in opening] == ["system", "user"]
        assert len(opening[0]["content"].split()) <= 130
        text = json.dumps(opening, ensure_ascii=False)
        assert task.spec["recipient"] not in text
        named = task.spec["parameters"]["mail"]["who"]  # may be an answer, too
        answers = {str(fact["label"]) for fact in task.spec["facts"].values() if fact["label"]} - {named}
        assert not [answer for answer in answers if answer in text]


def test_the_same_actions_give_the_same_bytes(
    environment: AnalystEnvironment, worlds: Path, tasks: dict[str, list[Task]]
) -> None:
    fresh = AnalystEnvironment(worlds, EnvironmentSection())  # cold caches
    for task in tasks["test"][:12] + tasks["ood"][:6]:
        expert = environment.expert(task, seed=3, flawed=True)
        one, last, messages, shown = environment.reset(task, seed=0), None, [], []
        for _ in range(30):
            messages.append(expert.act(last))
            shown.append(one.step(messages[-1]))
            last = shown[-1].result
        again = fresh.reset(task, seed=0)
        assert [again.step(message) for message in messages] == shown
        assert again.verdict() == one.verdict()
    fresh.close()


def mutations(message: str, rng: random.Random) -> str:
    """Return a message damaged in one of the ways that models damage them."""
    position = rng.randrange(len(message) + 1)
    junk = "".join(rng.choice(string.printable + "é\ud800\x00\u202e\U0001f600") for _ in range(rng.randint(1, 8)))
    value = rng.choice(
        ["null", "[]", "{}", "1e999", "-0", "true", '"x"', "NaN", '{"a": {"b": []}}', '"\\ud83d"', "9" * 400]
    )
    return rng.choice(
        [
            message[:position],
            message[position:],
            message[:position] + junk + message[position:],
            message[: position // 2] + message[position:],
            message.replace('": "', f'": {value}, "', 1),
            message.replace('"arguments": {', f'"arguments": {{"{junk}": {value}, ', 1),
            f"<tool_call>{message[:position]}",
            message[:position] * 3,
            message.replace(" ", junk),
            message.replace("2010", junk),
            "[" * rng.randint(1, 5000) + message,
            message.swapcase(),
            re.sub(r'"[^"]*"\}\}$', lambda _: f"{value}}}}}", message),
        ]
    )


def test_no_message_raises(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> None:
    """Fault E2 of the catalogue: one malformed call must not kill the rollout."""
    rng = random.Random(0)
    kinds: set[str | None] = set()
    for task in tasks["train"][:60]:
        expert, episode, last = environment.expert(task, seed=0, flawed=False), environment.reset(task, seed=0), None
        for _ in range(task.necessary_steps - 1):
            message = expert.act(last)
            for _ in range(12):
                damaged = mutations(message, rng)
                if "finish" in damaged:
                    continue
                result = episode.step(damaged).result
                kinds.add(result.error)
                assert len(result.content.encode()) < 10_000
            last = episode.step(message).result
        assert isinstance(episode.verdict().success, bool)
    assert "internal_error" not in kinds
    assert {"no_call", "malformed_json", "malformed_call", "wrong_type", "unknown_tool", "sql_error"} <= kinds


def test_arguments_of_every_type(episode: AnalystEpisode) -> None:
    values = [None, True, 0, -1, 1e300, 10**30, "", "x" * 7000, "\x00", "q1", "é" * 300, [], {}, [[]], {"a": 1}, "🙂"]
    arguments = {
        "list_tables": (),
        "describe_table": ("table",),
        "query_database": ("sql",),
        "analyze_data": ("data", "op", "column"),
        "generate_report": ("section", "value"),
        "send_email": ("to", "subject"),
    }
    rng = random.Random(1)
    for name, keys in arguments.items():
        for _ in range(100):
            step = episode.step(render_call(name, {key: rng.choice(values) for key in keys}))
            assert step.result.error != "internal_error"
            assert len(step.result.content) < 1000


def sent_first(messages: list[str]) -> list[str]:
    """Return the messages with the mail sent before the last section is written."""
    mail = next(i for i, message in enumerate(messages) if "send_email" in message)
    last = max(i for i, message in enumerate(messages) if "generate_report" in message)
    return [*messages[:last], *messages[last + 1 : mail + 1], messages[last], *messages[mail + 1 :]]


def changed(name: str, **arguments: object) -> Callable[[list[str]], list[str]]:
    """Return a function that changes the arguments of the first call of a tool."""

    def change(messages: list[str]) -> list[str]:
        first = next(i for i, message in enumerate(messages) if f'"{name}"' in message)
        call = json.loads(messages[first])
        return [*messages[:first], render_call(name, {**call["arguments"], **arguments}), *messages[first + 1 :]]

    return change


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda messages: messages, None),
        (lambda messages: messages[:-1], "not finished"),
        (lambda messages: [m for m in messages if "send_email" not in m], "mail: 0 sent"),
        (lambda messages: [m for m in messages if "generate_report" not in m], "missing"),
        (lambda messages: [*messages[:-1], *messages[-2:]], "mail: 2 sent"),
        (sent_first, "mail: the report was not complete"),
        (changed("generate_report", value="Atlantis"), "is 'Atlantis', not"),
        (changed("generate_report", value="q1[1]"), "section"),
        (changed("generate_report", section="elsewhere"), "missing"),
        (changed("send_email", to="someone@chinookcorp.com"), "mail: sent to someone@chinookcorp.com"),
        (lambda messages: [messages[-1], *messages[:-1]], "missing"),
    ],
)
def test_near_misses_of_a_played_episode(
    environment: AnalystEnvironment,
    tasks: dict[str, list[Task]],
    play: Play,
    spoil: Callable[[list[str]], list[str]],
    reason: str | None,
) -> None:
    for task in [task for task in tasks["test"] if task.family == "mail"][:6]:
        messages = [message for message, _ in play(task, environment.expert(task, seed=0, flawed=False))[0]]
        episode = environment.reset(task, seed=0)
        for message in spoil(messages):
            episode.step(message)
        verdict = episode.verdict()
        assert verdict.success is (reason is None)
        assert any(reason in line for line in verdict.reasons) if reason else verdict.reasons == ()


def test_a_value_two_percent_off_is_wrong(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> None:
    task = next(task for task in tasks["test"] if task.family == "comparison")
    for factor, right in ((1.0, True), (1.005, True), (1.02, False), (0.98, False)):
        episode = environment.reset(task, seed=0)
        for name, fact in task.spec["facts"].items():
            say(episode, "generate_report", section=name, value=fact["value"] * factor)
        say(episode, "finish")
        assert episode.verdict().success is right


def test_a_report_section_cannot_fake_the_verdict(
    environment: AnalystEnvironment, tasks: dict[str, list[Task]]
) -> None:
    """Fault E5: nothing that an agent can write is read as a verdict."""
    task = tasks["train"][0]
    episode = environment.reset(task, seed=0)
    for section in ("success", "reward", "verdict", "found:first", "reported:first"):
        say(episode, "generate_report", section=section, value=1.0)
    say(episode, "finish")
    verdict = episode.verdict()
    assert (verdict.success, verdict.progress) == (False, 0.0)


def test_subgoals_are_reached_once_and_in_order(
    environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    for task in tasks["val"][:24]:
        log, verdict = play(task, environment.expert(task, seed=0, flawed=False))
        reached = [name for _, step in log for name in step.subgoals]
        assert len(reached) == len(set(reached))
        assert set(reached) == set(verdict.subgoals)
        for name in task.spec["facts"]:
            assert reached.index(f"found:{name}") < reached.index(f"reported:{name}")


def test_what_was_not_shown_was_not_found(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> None:
    """A dump of all groups finds only what its first rows show."""
    wanted = {"kind": "rank", "group": "city", "order": "lowest", "metric": "revenue"}.items()
    task, part = next(
        (task, parts[0])
        for task in tasks["train"]
        if len(parts := task.spec["parameters"]["parts"]) == 1 and wanted <= parts[0].items()
    )
    sql = f"SELECT city, SUM(total) AS v FROM invoice WHERE month LIKE '{part['period']}%' GROUP BY city ORDER BY v"
    assert episode_subgoals(environment, task, f"{sql} DESC") == ()
    assert episode_subgoals(environment, task, sql) != ()


def episode_subgoals(environment: AnalystEnvironment, task: Task, sql: str) -> tuple[str, ...]:
    return environment.reset(task, seed=0).step(render_call("query_database", {"sql": sql})).subgoals


def test_a_task_of_another_world_is_refused(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> None:
    record = {**tasks["train"][0].to_record(), "world": "../train-0"}
    with pytest.raises(UserError, match="no world"):
        environment.reset(Task.from_record(record), seed=0)


def test_reset_and_step_are_cheap(environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play) -> None:
    """Bounds are ten times the target, so that a loaded machine passes and a lost index does not."""
    start = time.perf_counter()
    for task in tasks["train"][:200]:
        environment.reset(task, seed=0)
    assert (time.perf_counter() - start) / 200 < 0.01
    times = []
    for task in tasks["val"][:20]:
        episode, expert, last = environment.reset(task, seed=0), environment.expert(task, seed=0, flawed=False), None
        for _ in range(task.necessary_steps):
            message = expert.act(last)
            start = time.perf_counter()
            last = episode.step(message).result
            times.append(time.perf_counter() - start)
    assert sorted(times)[len(times) // 2] < 0.02
