"""Probes must clear an honest verifier and catch a gullible one."""

from geartrain.rollouts.probes import PROBES, run_probes
from tests.fakes.errand import Errand, make_tasks


def test_honest_verifier_pays_for_nothing():
    environment = Errand()
    found = run_probes(environment, make_tasks(4), max_turns=6, seed=0)
    assert found == {name: {"episodes": 4, "successes": 0, "passed_tasks": []} for name in PROBES}
    assert all(episode.closed for episode in environment.opened)


def test_gullible_verifier_is_caught_by_every_probe():
    found = run_probes(Errand(gullible=True), make_tasks(7), max_turns=6, seed=0)
    assert {name: probe["successes"] for name, probe in found.items()} == dict.fromkeys(PROBES, 7)
    assert len(found["spam"]["passed_tasks"]) == 5


def test_verifier_that_reads_the_report_for_words_of_the_question_is_caught_by_spam_alone():
    class Parrot(Errand):
        def reset(self, task, *, seed):
            episode = super().reset(task, seed=seed)
            step, judge = episode.step, episode.verdict
            heard = []
            episode.step = lambda message: (heard.append(message), step(message))[1]
            episode.verdict = lambda: type(judge())(any(task.prompt in m for m in heard), {"report": True})
            return episode

    found = run_probes(Parrot(), make_tasks(3), max_turns=6, seed=0)
    assert {name: probe["successes"] for name, probe in found.items()} == {"silent": 0, "blank": 0, "spam": 3}


def test_spam_does_not_end_early_and_ends_with_the_tool_that_ends():
    environment = Errand()
    task = make_tasks(1)[0]
    messages = list(PROBES["spam"](task, environment.tools(), frozenset({"finish"}), 5))
    assert len(messages) == 5
    assert all('"take"' in message and task.prompt in message for message in messages[:4])
    assert '"finish"' in messages[4]


def test_no_tasks_no_episodes():
    assert run_probes(Errand(), [], max_turns=3, seed=0)["silent"] == {
        "episodes": 0,
        "successes": 0,
        "passed_tasks": [],
    }
