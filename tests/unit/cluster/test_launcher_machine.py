"""Launchers come, are killed, meet each other and trouble; what they promise holds whatever happens, in any order.

The promises: there are never two live jobs of a spec (the world refuses the second); 0 means that a job is Complete
and its output whole; a live job is never lost, the next launcher adopts it; suspensions alone do not fail a stage
within its budget.
"""

from collections.abc import Sequence
from itertools import chain, cycle, repeat
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from geartrain.cluster import api
from geartrain.cluster.api import Kubernetes
from geartrain.cluster.budgets import Budgets
from geartrain.cluster.launcher import Outcome, Watch, launch
from geartrain.cluster.phase import Phase, hash_of, is_live, observe, uid_of
from geartrain.cluster.trainjob import TrainingJob, manifest
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_QUEUE, EXIT_USER, UserError
from tests.fakes.simulated_cluster import KilledError, SimulatedCluster, World
from tests.fakes.simulated_http import ClusterOverHttp, WorldServer

POLL, QUEUE = 15.0, 600.0
WATCH = Watch(Budgets(QUEUE, start_seconds=300, run_seconds=3600), poll_seconds=POLL, errors=2)
WORLD = ("admit", "run", "suspend", "fail", "mistake", "complete", "ruin", "vanish")
MEETINGS = ("launch one", "launch two")
CALLS = (*["ok"] * 8, "run", "trouble", "trouble", "lost", "kill after", "stop")
# the first two calls list and create: what happens there decides who holds the job
FIRST = ("ok", "ok", "ok", *MEETINGS, "trouble", "lost", "kill after")
SHORT = ("ok", "ok", "ok", "ok", "run", "fail", "complete", "trouble")  # no deletion: see adoption.py
# a script is drawn from one number: as a list that hypothesis draws it stays short, and few launchers get anywhere
SEEDS = st.integers(0, 2**32 - 1)
SPECS = st.sampled_from(["one", "two"])


def _job(which: str) -> TrainingJob:
    """Two specs of one run and stage: a person has changed the configuration and started the step again."""
    image = f"registry.example/geartrain/gpu@sha256:{'a' * 64}"
    return TrainingJob("run-1", "policy", image, ("train", which), nodes=2, processes_per_node=1, queue="geartrain")


HASHES = {name: hash_of(manifest(_job(name))) for name in ("one", "two")}


class Launchers(RuleBasedStateMachine):
    """Everything that may happen to a stage of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.short: list[str] = []

    @initialize()
    def begin(self) -> None:
        self.world = World()

    def cluster(self, script: Sequence[str], **options: Any) -> SimulatedCluster:
        """The world as one launcher sees it."""
        return SimulatedCluster(self.world, script, **options)

    @rule(which=SPECS, seed=SEEDS)
    def a_launcher_comes(self, which: str, seed: int) -> None:
        dice = Random(seed)
        script = dice.choices(FIRST, k=3) + dice.choices((*WORLD, *CALLS, *MEETINGS), k=dice.randint(5, 40))
        self.short = dice.choices(SHORT, k=dice.randint(2, 8))
        note(f"a launcher: {' '.join(script)}; whom it meets: {' '.join(self.short)}")
        self._launch(which, self.cluster(script, others=self._another))

    def _another(self, step: str) -> None:
        """A second launcher, between two calls of the first; it ends by being killed at the latest."""
        self._launch(step.split()[1], self.cluster([*self.short, "kill"]))

    @rule(what=st.sampled_from(WORLD[:-1]), pick=st.integers(0, 9))
    @precondition(lambda self: self.world.live())
    def something_happens(self, what: str, pick: int) -> None:
        live = self.world.live()
        self.world.happen(what, live[pick % len(live)])

    @rule(seconds=st.sampled_from([10.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(pick=st.integers(0, 9))
    @precondition(lambda self: len(self.world.live()) < len(self.world.jobs))
    def a_finished_job_is_reaped(self, pick: int) -> None:
        finished = [name for name, job in sorted(self.world.jobs.items()) if not is_live(job)]
        del self.world.jobs[finished[pick % len(finished)]]

    @rule(which=SPECS)
    def a_launcher_that_nothing_disturbs_adopts_and_succeeds(self, which: str) -> None:
        live = [uid_of(job) for job in self._of(which) if is_live(job)]
        before = self.world.made
        undisturbed = cycle(["ok", "ok", "ok", "admit", "run", "ok", "complete"])
        cluster = self.cluster([], otherwise=undisturbed)
        waited = {uid: self.world.suspended_seconds[uid] for uid in live}
        outcome = self._launch(which, cluster)
        assert outcome is not None
        if live:
            assert self.world.made == before, "a live job was there, and another was created"
            assert set(live) <= cluster.held, "a live job was there, and not adopted"
        if outcome.exit_code == EXIT_QUEUE:
            assert max(waited.values(), default=0.0) > QUEUE / 2, "nobody had used the budget up"
        elif outcome.exit_code == EXIT_INFRASTRUCTURE:
            assert "ran" in outcome.reason  # the run budget is used up, too
        else:
            assert outcome.exit_code == 0

    @rule(which=SPECS, waits=st.lists(st.integers(1, int(QUEUE // POLL) - 2), min_size=1, max_size=3))
    def preemptions_within_the_budget_do_not_fail_a_stage(self, which: str, waits: list[int]) -> None:
        for job in self._of(which):
            del self.world.jobs[job["metadata"]["name"]]
        rounds = chain.from_iterable([*["quiet"] * wait, "admit", "run", "suspend"] for wait in waits)
        polls = chain(rounds, ["admit", "run", "complete"], repeat("ok"))
        outcome = self._launch(which, self.cluster(["ok", "ok"], otherwise=polls))
        assert outcome is not None
        assert (outcome.exit_code, outcome.suspends) == (0, len(waits)), outcome.reason

    @invariant()
    def no_two_live_jobs_of_a_spec(self) -> None:
        hashes = [hash_of(job) for job in self.world.live()]
        assert len(hashes) == len(set(hashes))

    @invariant()
    def no_launcher_deletes_unless_told_to(self) -> None:
        assert self.world.deletions == []

    def _of(self, which: str) -> list[dict[str, Any]]:
        return [job for job in self.world.jobs.values() if hash_of(job) == HASHES[which]]

    def _launch(self, which: str, cluster: SimulatedCluster) -> Outcome | None:
        """Run a launcher; return how it ended, None if it was killed. Whatever it says has to be true."""

        def verify() -> None:
            if not self.world.is_whole.get(str(HASHES[which])):
                raise UserError("the output is not whole")

        try:
            outcome = launch(_job(which), cluster, verify, cluster.clock(), watch=WATCH)
        except KilledError:
            return None
        job = self.world.jobs.get(outcome.name or "")
        if outcome.exit_code == 0:
            assert self.world.is_whole[str(HASHES[which])]
            assert job is None or observe(job).phase is Phase.COMPLETE
            assert outcome.phase == "Complete"
        if outcome.exit_code == EXIT_QUEUE:
            assert job is not None
            slack = POLL * (1 + self.world.transitions[uid_of(job)])
            assert self.world.suspended_seconds[uid_of(job)] + slack > QUEUE
        if outcome.exit_code == EXIT_USER:
            assert outcome.phase == "Failed"
            assert job is None or self.world.exit_code[uid_of(job)] == 2
        return outcome


Launchers.TestCase.settings = settings(
    derandomize=True, database=None, deadline=None, max_examples=240, stateful_step_count=16
)
TestLaunchers = Launchers.TestCase


class LaunchersOverHttp(Launchers):
    """The same, through the real client and an HTTP server that answers as a cluster's does."""

    server: WorldServer
    client: Kubernetes

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.server.show(self.world)

    def cluster(self, script: Sequence[str], **options: Any) -> SimulatedCluster:
        return ClusterOverHttp(self.client, self.server, script, **options)

    @invariant()
    def the_server_saw_nothing_that_must_not_be(self) -> None:
        assert self.server.broken == []


def test_the_promises_hold_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with WorldServer() as server:
        LaunchersOverHttp.server = server
        LaunchersOverHttp.client = api.connect(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        machine = LaunchersOverHttp.TestCase
        machine.settings = settings(Launchers.TestCase.settings, max_examples=12, stateful_step_count=12)
        machine().runTest()
        LaunchersOverHttp.client._api.rest_client.pool_manager.clear()
    assert len(server.requests) > 1000
    assert {"GET", "POST"} == {request.method for request in server.requests}
