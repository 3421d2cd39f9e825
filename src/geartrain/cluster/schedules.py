"""Schedules live in git; a server is brought to what git says: create, switch over, delete when idle.

Kubeflow cannot change a recurring run (kubeflow/pipelines#3789), and deleting one may end the run that it started
(kubeflow/pipelines#7421). So each state of a schedule gets a recurring run of its own, named after its content, and
the switch is: create the new one disabled, disable the old one, enable the new one, delete the old one once nothing
of it runs. At no moment are two enabled, whichever call is the last before a crash; planning again goes on from there.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from geartrain.cluster.interface import NotFoundError
from geartrain.cluster.package import SHORT, Package, canonical, same_content
from geartrain.cluster.records import Recurring, Run, Version
from geartrain.cluster.schedule_file import Schedule

MARK = "geartrain-schedule"
"""First word of the description of every recurring run that is ours to change."""
LINE = re.compile(r"^([a-z-]+): (\S+)$", re.MULTILINE)


class Scheduler(Protocol):
    """What reconciling asks of a server; `kubeflow.Kubeflow` answers it."""

    def list_recurring(self, *, experiment: str) -> Sequence[Recurring]:
        """Return every recurring run of an experiment, oldest first."""
        ...

    def create_recurring(self, wanted: Recurring, *, experiment: str) -> Recurring:
        """Create a recurring run."""
        ...

    def enable(self, recurring_id: str) -> None:
        """Let it start runs."""
        ...

    def disable(self, recurring_id: str) -> None:
        """Keep it from starting runs."""
        ...

    def delete(self, recurring_id: str) -> None:
        """Delete it; gone already is fine."""
        ...

    def list_runs(self, *, recurring_run: str) -> Iterable[Run]:
        """Return the runs that it started, newest first."""
        ...

    def version(self, pipeline_id: str, version_id: str) -> Version:
        """Return a pipeline version with its content."""
        ...


@dataclass(frozen=True)
class Wanted:
    """A schedule of git with everything that decides what its runs do."""

    schedule: Schedule
    package: Package
    parameters: Mapping[str, Any]
    version: Version
    service_account: str
    platform: str
    """Version of the server: it stores a compiled workflow, which an upgrade leaves as it is
    (kubeflow/pipelines#11296), so another platform is another recurring run."""

    @property
    def recurring(self) -> Recurring:
        """The recurring run that stands for it; its name ends in a hash of what matters."""
        parts = {
            "cron": self.schedule.cron.text,
            "parameters": canonical(dict(self.parameters)),
            "pipeline": self.package.digest,
            "platform": self.platform,
            "service-account": self.service_account,
            "rules": "no_catchup=true max_concurrency=1",
        }
        marks = {
            MARK: self.schedule.name,
            "pipeline": self.package.digest[:SHORT],
            "parameters": _short(parts["parameters"]),
            "platform": self.platform,
        }
        lines = [f"{key}: {value}" for key, value in marks.items()]
        about = [f"owner: {self.schedule.owner}", self.schedule.description]
        return Recurring(
            id="",
            name=f"{self.schedule.name}-{_short(canonical(parts))}",
            cron=self.schedule.cron.text,
            enabled=False,
            description="\n".join([*lines, "", *about]),
            pipeline_id=self.version.pipeline_id,
            version_id=self.version.id,
            parameters=self.parameters,
            max_concurrency=1,
            no_catchup=True,  # re-enabling would run every slot that was missed (kubeflow/pipelines#8344)
            service_account=self.service_account,
        )


@dataclass(frozen=True)
class Action:
    """One call, or with kind `keep` and `wait` the reason for none."""

    kind: str
    """create, disable, enable, delete, keep, wait."""
    schedule: str
    name: str
    """Of the recurring run."""
    reason: str
    recurring_id: str = ""
    """Empty where it does not exist yet."""


def make_plan(server: Scheduler, wanted: Iterable[Wanted], *, experiment: str) -> list[Action]:
    """Return what brings the server to what git wants, in the order in which it is done.

    Recurring runs without our mark in their description are nobody's business here.
    """
    there = [item for item in server.list_recurring(experiment=experiment) if owner_of(item)]
    plan: list[Action] = []
    desired = {one.schedule.name: one for one in wanted}
    for name in sorted({*desired, *map(owner_of, there)}):
        mine = [item for item in there if owner_of(item) == name]
        plan += _plan_one(server, name, desired.get(name), mine)
    return plan


def apply(
    server: Scheduler, wanted: Sequence[Wanted], *, experiment: str, say: Callable[[str], None] = lambda _: None
) -> list[Action]:
    """Carry the plan out; return what was done. What an error leaves undone, the next call does.

    A recurring run is deleted only if nothing of it runs when the deletion is due, which is asked again then.
    """
    done = []
    created: dict[str, str] = {}
    mapping = {one.schedule.name: one for one in wanted}
    for action in make_plan(server, wanted, experiment=experiment):
        if action.kind in ("keep", "wait"):
            continue
        if action.kind == "delete" and is_busy(server, action.recurring_id):
            say(f"wait     {action.name}: a run of it has just started")
            continue
        say(f"{action.kind:8} {action.name}: {action.reason}")
        target = action.recurring_id or created.get(action.name, "")
        if action.kind == "create":
            made = server.create_recurring(mapping[action.schedule].recurring, experiment=experiment)
            created[action.name] = made.id
        else:
            _call(server, action.kind, target)
        done.append(action)
    return done


def _call(server: Scheduler, kind: str, recurring_id: str) -> None:
    try:
        {"enable": server.enable, "disable": server.disable, "delete": server.delete}[kind](recurring_id)
    except NotFoundError:
        if kind == "enable":  # somebody deleted it meanwhile: the next apply makes it again
            raise


def _plan_one(server: Scheduler, name: str, wanted: Wanted | None, mine: list[Recurring]) -> Iterator[Action]:
    """Yield what one schedule needs: create, disable, enable, delete, in this order."""
    current = None if wanted is None else _current(server, wanted, mine)
    on = wanted is not None and wanted.schedule.enabled
    others = [item for item in mine if current is None or item.id != current.id]
    goal = None if wanted is None else wanted.recurring
    if goal is not None and on and current is None:
        yield Action("create", name, goal.name, _why_new(server, wanted, others))
    for item in others:
        if item.enabled:
            yield Action("disable", name, item.name, _why_old(wanted, goal, item), item.id)
    if current is not None and current.enabled and not on:
        yield Action("disable", name, current.name, "git says enabled: false", current.id)
    if goal is not None and on and (current is None or not current.enabled):
        paused = current is not None and not any(item.enabled for item in others)
        reason = (
            "it is off on the server, git says enabled: true" if paused else "takes over" if others else "it is new"
        )
        yield Action("enable", name, goal.name, reason, "" if current is None else current.id)
    if current is not None and current.enabled == on:
        yield Action("keep", name, current.name, "as in git" if on else "off, as in git", current.id)
    for item in others:
        if is_busy(server, item.id):
            yield Action("wait", name, item.name, "a run of it is at work; deleted by a later apply", item.id)
        else:
            yield Action("delete", name, item.name, _why_old(wanted, goal, item), item.id)


def _current(server: Scheduler, wanted: Wanted, mine: list[Recurring]) -> Recurring | None:
    """Return the recurring run that is what git wants; of several an enabled one, then the oldest."""
    goal = wanted.recurring
    same = [item for item in mine if item.name == goal.name and not _differences(server, wanted, item)]
    return min(same, key=lambda item: (not item.enabled, str(item.created), item.id), default=None)


def _differences(server: Scheduler, wanted: Wanted, item: Recurring) -> list[str]:
    """Return what an existing recurring run has otherwise than git, whatever its name says.

    Parameters are compared by the hash in the description: nobody can change those of a recurring run, and a server
    that sends them back in another form must not look like drift for ever.
    """
    goal = wanted.recurring
    told, ours = facts(item), facts(goal)
    pairs: dict[str, tuple[Any, Any]] = {
        "cron": (item.cron, goal.cron),
        "max_concurrency": (item.max_concurrency, goal.max_concurrency),
        "no_catchup": (item.no_catchup, goal.no_catchup),
        "service account": (item.service_account or goal.service_account, goal.service_account),
        **{key: (told.get(key), ours[key]) for key in ("platform", "parameters", "pipeline")},
    }
    found = [f"{key} {old} -> {new}" for key, (old, new) in pairs.items() if old != new]
    if told.get("pipeline") == ours["pipeline"] and not _is_stored(server, wanted, item):
        found.append("the stored pipeline is gone, or is not what its name says")
    return found


def _is_stored(server: Scheduler, wanted: Wanted, item: Recurring) -> bool:
    """Tell whether the version that a recurring run is pinned to is there and holds what git has."""
    try:
        return same_content(server.version(item.pipeline_id, item.version_id).spec, wanted.package)
    except NotFoundError:
        return False


def _why_new(server: Scheduler, wanted: Wanted | None, others: list[Recurring]) -> str:
    if not others or wanted is None:
        return "new in git"
    newest = max(others, key=lambda item: (item.enabled, str(item.created)))
    return "drift: " + (", ".join(_differences(server, wanted, newest)) or "several of one name")


def _why_old(wanted: Wanted | None, goal: Recurring | None, item: Recurring) -> str:
    if wanted is None or goal is None:
        return "not in git any more"
    if item.name == goal.name:
        return "a second one of the same name, or not what its name says"
    return f"git says {goal.name}"


def is_busy(server: Scheduler, recurring_id: str) -> bool:
    """Tell whether a run that it started is still at work."""
    return any(run.active for run in server.list_runs(recurring_run=recurring_id))


def facts(item: Recurring) -> dict[str, str]:
    """Return what we wrote into a recurring run's description: its schedule, hashes, the platform."""
    head = item.description.split("\n\n", 1)[0]
    return dict(LINE.findall(head))


def owner_of(item: Recurring) -> str:
    """Return the name of the schedule that a recurring run stands for; empty if it is none of ours."""
    return facts(item).get(MARK, "") if item.description.startswith(f"{MARK}: ") else ""


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:SHORT]
