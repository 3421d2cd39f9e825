"""Every recipe trains with an exporter: few series, nothing misread, and every metric of a record is in some record."""

import threading
from functools import partial

import pytest

from geartrain import live
from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import settings_of
from geartrain.models.heads import CriticHead
from geartrain.rewards.mix import RewardMix
from geartrain.rewards.outcome import Value
from geartrain.stages.policy import TaskWorld
from geartrain.telemetry import MAX_SERIES, METRICS
from geartrain.telemetry.endpoint import Endpoint
from geartrain.telemetry.readings import Readings, _follow
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.critic import Labelling
from geartrain.training.policy import PolicyTrainer
from tests.fakes.parity import Parity, ParityPlayers, make_config, make_policy, make_tasks
from tests.fakes.ranks import scrapes_of_two
from tests.fakes.scrape import counters, fetch, parse

NOT_HERE = {
    "record.reference_failures.*": "no reference server",
    "ranks.gpu_allocated_bytes": "no GPU",
    "ranks.gpu_reserved_bytes": "no GPU",
    "ranks.gpu_peak_bytes": "no GPU",
}
"""Sources that these runs cannot have."""
AWAITED = {"record.critic_reliability", "record.inert_iterations"}
"""Declared before every run has them; take a name out once it has."""


class Lengths:
    """Likes long messages, so that there is a judge that disagrees."""

    name = "learned"

    def score(self, trajectories, tasks):
        return [Value(float(len(t.token_ids()))) for t in trajectories]


def train(work, recipe):
    """Train two iterations; return the lines, and every scrape that another thread has made meanwhile."""
    config, policy = make_config(iterations=3, validate_every=2, checkpoint_every=1), make_policy()
    rewards = RewardMix(policy.tokenizer, model_weight=0.2, invalid_call_reward=-0.1, learned=Lengths())
    tasks = make_tasks(7), make_tasks(4, "val")
    world = TaskWorld(ParityPlayers(config), *tasks, rewards, config, Parity(), policy.chat)
    width = policy.model.config.hidden_size
    assigner = CreditAssigner(
        RECIPES[recipe],
        settings_of(recipe, config.policy.settings.get(recipe, {})),
        critic=Critic(CriticHead(width, hidden=8).eval(), 0.7, None, Labelling(1.0, 0.5, 5.0)),
        width=width,
        iterations=3,
        seed=0,
    )
    lines, scrapes, done, readings = [], [], threading.Event(), Readings()
    ends = [live.subscribe(lines.append), live.subscribe(partial(readings.tell, "policy"))]
    endpoint = Endpoint(readings)

    def scrape():
        while not done.wait(0.1):
            scrapes.append(fetch(endpoint.port))

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        live.emit("begin", parameters={"policy": config.policy.model_dump(mode="json")})
        PolicyTrainer(policy, assigner, world, config.policy, context=256, seed=0, work=work).run()
    finally:
        done.set()
        thread.join()
        scrapes.append(fetch(endpoint.port))
        endpoint.close()
        for end in ends:
            end()
    return lines, scrapes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {recipe: train(tmp_path_factory.mktemp(recipe), recipe) for recipe in RECIPES}


@pytest.mark.slow
def test_a_run_of_any_recipe_has_few_series_and_misreads_nothing(runs):
    for recipe, (_, scrapes) in runs.items():
        last = parse(scrapes[-1])
        assert last["geartrain_exporter_errors_total", ()] == 0, recipe
        assert 80 < len(last) < MAX_SERIES / 2, recipe


@pytest.mark.slow
def test_ten_scrapes_a_second_lose_nothing_and_no_counter_falls(runs):
    for recipe, (lines, scrapes) in runs.items():
        before = {}
        for text in scrapes:
            now = counters(text)
            assert not {key for key, value in before.items() if now.get(key, -1.0) < value}, recipe
            before = now
        told = [line for line in lines if line["kind"] == "iteration"]
        of_policy = (("stage", "policy"),)
        assert before["geartrain_train_iterations_total", of_policy] == len(told) == 3
        assert before["geartrain_train_tokens_total", of_policy] == sum(line["tokens"]["trained"] for line in told)
        assert before["geartrain_rollout_steps_total", of_policy] == sum(
            line["record"]["environment_steps"] for line in told
        )


@pytest.mark.slow
def test_every_metric_of_an_iteration_has_a_source(runs):
    """A name that nobody writes would be a panel that stays empty."""
    lines = [line for lines, _ in runs.values() for line in lines if line["kind"] == "iteration"]
    sources = {
        part.removeprefix("start: "): metric.labels
        for metric in METRICS.values()
        if metric.source.startswith(("record.", "seconds.", "tokens.", "start: "))
        for part in metric.source.split(" / ")
    }
    empty = {
        source
        for source, labels in sources.items()
        if not any(_follow(source.split("."), labels, line, {}) for line in lines)
    }
    ranks = {name for line in lines for rank in line["ranks"] for name in rank}
    empty |= {metric.source for metric in METRICS.values() if metric.source.startswith("ranks.")} - {
        f"ranks.{name}" for name in ranks
    }
    assert empty - AWAITED == set(NOT_HERE)


@pytest.mark.slow
def test_of_two_ranks_one_tells_of_training_and_both_are_told_of(tmp_path):
    leader, other = map(parse, scrapes_of_two(tmp_path))
    of_policy = (("stage", "policy"),)
    assert leader["geartrain_train_iterations_total", of_policy] == 2
    assert not [name for name, _ in other if name.startswith(("geartrain_train_", "geartrain_rollout_"))]
    for scrape in (leader, other):
        memory = {dict(labels)["rank"]: value for (name, labels), value in scrape.items() if "rank_memory" in name}
        assert memory.keys() == {"0", "1"}
        assert min(memory.values()) > 1e7
    trained = sum(value for (name, _), value in leader.items() if name == "geartrain_rank_trained_tokens_total")
    assert trained == leader["geartrain_train_tokens_total", of_policy]
