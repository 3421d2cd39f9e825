"""Reconciling schedules: what a plan says, and that no order of edits, crashes and runs breaks its promises."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from geartrain.cluster.cron import parse_cron
from geartrain.cluster.kubeflow import Kubeflow
from geartrain.cluster.package import read_package
from geartrain.cluster.records import UnavailableError
from geartrain.cluster.schedule_file import Schedule
from geartrain.cluster.schedules import Wanted, apply, facts, make_plan, owner_of
from tests.fakes.kubeflow_server import KubeflowServer
from tests.fakes.pipeline import write_pipeline
from tests.fakes.scheduler import CrashError, Direct
from tests.fakes.simulated_http import SchedulerOverHttp

CRONS = ("0 0 2 * * *", "0 30 4 * * SUN")
NAMES = ("nightly", "weekly")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    return [
        read_package(write_pipeline(folder / f"{tag}.yaml", image=f"geartrain/python@sha256:{tag}")) for tag in "ab"
    ]


@pytest.fixture
def server(packages):
    return Direct(packages)


def wanted(server, *, name="nightly", cron=CRONS[0], seed=1, enabled=True, package=0, platform="2.17.1"):
    schedule = Schedule(
        Path(f"{name}.yaml"), name, "text", "team@example.org", parse_cron(cron), "demo", enabled=enabled
    )
    return Wanted(
        schedule=schedule,
        package=server.packages[package],
        parameters={"seed": seed},
        version=server.ensure(package),
        service_account="geartrain-pipeline",
        platform=platform,
    )


def reconcile(server, *goals):
    return [action.kind for action in apply(server, goals, experiment=server.experiment)]


def planned(server, *goals):
    return {(action.kind, action.reason) for action in make_plan(server, goals, experiment=server.experiment)}


def test_a_new_schedule_is_created_off_and_then_switched_on(server):
    assert reconcile(server, wanted(server)) == ["create", "enable"]
    (item,) = server.all()
    assert (item.max_concurrency, item.no_catchup, item.enabled, item.cron) == (1, True, True, CRONS[0])
    assert item.name.startswith("nightly-")
    assert len(item.name) == len("nightly-") + 12
    assert (owner_of(item), facts(item)["platform"]) == ("nightly", "2.17.1")
    assert "team@example.org" in item.description
    assert planned(server, wanted(server)) == {("keep", "as in git")}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cron": CRONS[1]}, re.escape(f"drift: cron {CRONS[0]} -> {CRONS[1]}")),
        ({"seed": 2}, r"drift: parameters [0-9a-f]{12} -> [0-9a-f]{12}"),
        ({"platform": "2.17.3"}, "drift: platform 2.17.1 -> 2.17.3"),  # kubeflow/pipelines#11296
    ],
)
def test_a_change_is_a_new_one_and_the_old_one_goes(server, change, reason):
    reconcile(server, wanted(server))
    goal = wanted(server, **change)
    assert any(kind == "create" and re.fullmatch(reason, why) for kind, why in planned(server, goal))
    assert reconcile(server, goal) == ["create", "disable", "enable", "delete"]
    assert [item.name for item in server.all()] == [goal.recurring.name]


def test_other_content_of_the_pipeline_is_drift_by_its_hash(server, packages):
    reconcile(server, wanted(server))
    reasons = {reason for kind, reason in planned(server, wanted(server, package=1)) if kind == "create"}
    assert reasons == {f"drift: pipeline {packages[0].digest[:12]} -> {packages[1].digest[:12]}"}


def test_a_stored_version_that_was_changed_or_deleted_is_drift_though_the_name_fits(server):
    goal = wanted(server)
    reconcile(server, goal)
    (version,) = server.state.versions.values()
    version["pipeline_spec"]["root"]["dag"]["tasks"] = {}
    gone = "drift: the stored pipeline is gone, or is not what its name says"
    assert ("create", gone) in planned(server, goal)
    server.state.versions.clear()
    assert ("create", gone) in planned(server, goal)


def test_what_a_server_writes_in_another_form_is_no_drift(server):
    goal = wanted(server)
    reconcile(server, goal)
    (item,) = server.state.recurring.values()
    item["runtime_config"]["parameters"] = {"seed": 1.0, "added": "default"}
    item["service_account"] = ""
    assert reconcile(server, goal) == []


def test_one_with_a_run_at_work_stays_until_it_is_idle(server):
    reconcile(server, wanted(server))
    run = server.state.fire(server.all()[0].id)
    goal = wanted(server, seed=2)
    assert reconcile(server, goal) == ["create", "disable", "enable"]
    assert ("wait", "a run of it is at work; deleted by a later apply") in planned(server, goal)
    assert reconcile(server, goal) == []
    server.state.finish(run, "SUCCEEDED")
    assert reconcile(server, goal) == ["delete"]
    assert server.state.killed == []


def test_a_run_that_starts_between_plan_and_deletion_saves_its_schedule(server):
    reconcile(server, wanted(server))
    old = server.all()[0].id
    server.before("disable", lambda: server.state.fire(old))  # the controller was faster
    assert reconcile(server, wanted(server, seed=2)) == ["create", "disable", "enable"]
    assert old in server.state.recurring


def test_what_git_lost_is_switched_off_and_deleted(server):
    reconcile(server, wanted(server), wanted(server, name="weekly"))
    assert planned(server, wanted(server, name="weekly")) >= {("disable", "not in git any more")}
    assert reconcile(server, wanted(server, name="weekly")) == ["disable", "delete"]


def test_off_in_git_is_off_on_the_server_and_kept(server):
    reconcile(server, wanted(server))
    assert reconcile(server, wanted(server, enabled=False)) == ["disable"]
    assert reconcile(server, wanted(server, enabled=False)) == []
    assert reconcile(server, wanted(server)) == ["enable"]
    assert reconcile(Direct(server.packages), wanted(server, enabled=False)) == []


def test_git_wins_over_a_pause_on_the_server_and_says_so(server):
    reconcile(server, wanted(server))
    server.disable(server.all()[0].id)
    assert planned(server, wanted(server)) == {("enable", "it is off on the server, git says enabled: true")}


def test_recurring_runs_of_other_people_are_left_alone(server):
    other = wanted(server).recurring
    server.create_recurring(type(other)(**{**vars(other), "description": "mine"}), experiment=server.experiment)
    assert reconcile(server, wanted(server)) == ["create", "enable"]
    assert len(server.all()) == 2
    assert reconcile(server) == ["disable", "delete"]
    assert [item.description for item in server.all()] == ["mine"]


def test_twins_of_one_name_are_reduced_to_the_one_that_is_on(server):
    goal = wanted(server)
    server.create_recurring(goal.recurring, experiment=server.experiment)
    server.create_recurring(goal.recurring, experiment=server.experiment)
    assert reconcile(server, goal) == ["enable", "delete"]
    assert [item.enabled for item in server.all()] == [True]


class Reconciling(RuleBasedStateMachine):
    """Git changes, runs come and go, people meddle, calls fail; then an apply that ends well has to hold."""

    packages = ()

    @initialize()
    def begin(self):
        self.server = self.scheduler()
        settings = {"cron": CRONS[0], "seed": 1, "enabled": True, "package": 0}
        self.git = {name: {"name": name, **settings} for name in NAMES}
        self.platform = "2.17.1"

    def scheduler(self):
        return Direct(self.packages)

    def goals(self):
        return [wanted(self.server, platform=self.platform, **settings) for settings in self.git.values()]

    @rule(name=st.sampled_from(NAMES), cron=st.sampled_from(CRONS), seed=st.integers(1, 2), package=st.integers(0, 1))
    def edit(self, **settings):
        self.git[settings["name"]] = {**settings, "enabled": True}

    @precondition(lambda self: self.git)
    @rule(data=st.data())
    def switch(self, data):
        settings = self.git[data.draw(st.sampled_from(sorted(self.git)))]
        settings["enabled"] = not settings["enabled"]

    @precondition(lambda self: len(self.git) == len(NAMES))
    @rule(name=st.sampled_from(NAMES))
    def remove(self, name):
        del self.git[name]

    @rule()
    def upgrade(self):
        self.platform = "2.17.2" if self.platform == "2.17.1" else "2.17.1"

    @precondition(lambda self: any(item.enabled for item in self.server.all()))
    @rule(data=st.data())
    def a_run_starts(self, data):
        on = sorted(item.id for item in self.server.all() if item.enabled)
        self.server.state.fire(data.draw(st.sampled_from(on)))

    @precondition(lambda self: self.server.at_work())
    @rule(data=st.data(), state=st.sampled_from(["SUCCEEDED", "FAILED"]))
    def a_run_ends(self, data, state):
        self.server.state.finish(data.draw(st.sampled_from(sorted(self.server.at_work()))), state)

    @precondition(lambda self: self.server.all())
    @rule(data=st.data(), on=st.booleans())
    def somebody_meddles(self, data, on):
        self.server.meddled = self.server.meddled or on
        self.server.state.switch(data.draw(st.sampled_from(sorted(item.id for item in self.server.all()))), on)

    @rule(call=st.integers(0, 9), done=st.booleans(), crash=st.booleans())
    def apply_fails(self, call, done, crash):
        self.server.break_at(call, done=done, error=CrashError() if crash else UnavailableError("x", maybe_done=done))
        try:
            reconcile(self.server, *self.goals())
        except (CrashError, UnavailableError):
            pass
        finally:
            self.server.heal()

    @rule()
    def apply_ends_well(self):
        reconcile(self.server, *self.goals())
        self.server.meddled = False
        on = Counter(owner_of(item) for item in self.server.all() if item.enabled)
        assert on == Counter(name for name, settings in self.git.items() if settings["enabled"])
        names = {goal.recurring.name for goal in self.goals()}
        assert all(item.name in names for item in self.server.all() if item.enabled)
        left = [item for item in self.server.all() if item.name not in names]
        assert all(self.server.state.active(item.id) for item in left)
        before = self.server.all()
        assert reconcile(self.server, *self.goals()) == []
        assert self.server.all() == before

    @invariant()
    def no_run_was_killed(self):
        assert self.server.state.killed == []


def test_no_order_of_edits_crashes_and_runs_breaks_a_promise(packages):
    Reconciling.packages = packages
    machine = Reconciling.TestCase
    machine.settings = settings(
        max_examples=100, stateful_step_count=30, deadline=None, derandomize=True, database=None
    )
    machine().runTest()


class ReconcilingOverHttp(Reconciling):
    """The same through Kubeflow's own client and an HTTP server, which is busy at times."""

    http = client = None

    def scheduler(self):
        return SchedulerOverHttp(self.packages, self.http, self.client)

    @rule(pattern=st.sampled_from(["GET", "POST .*:", "DELETE"]), status=st.sampled_from([429, 500, 503]))
    def the_server_is_busy(self, pattern, status):
        self.server.busy(pattern, status, times=2)


def test_the_promises_hold_over_http(packages):
    with KubeflowServer() as http:
        ReconcilingOverHttp.packages, ReconcilingOverHttp.http = packages, http
        ReconcilingOverHttp.client = Kubeflow(http.url, sleep=lambda _: None)
        machine = ReconcilingOverHttp.TestCase
        machine.settings = settings(Reconciling.TestCase.settings, max_examples=25, stateful_step_count=20)
        machine().runTest()
    assert len(http.seen) > 300
    assert {line.split()[0] for line in http.seen} == {"GET", "POST", "DELETE"}
