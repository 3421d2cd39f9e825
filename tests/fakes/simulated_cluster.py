"""A cluster as the launcher sees it, without HTTP: a world with its own time, and an API that fails as it is told.

Every API call of a launcher first does what the next entry of its script says: something happens in the world, the
call fails, its answer is lost, the launcher is killed, or another launcher comes and goes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from geartrain.cluster.interface import (
    ConflictError,
    Event,
    NoAnswerError,
    NotFoundError,
    PodState,
    ServerFaultError,
)
from geartrain.cluster.patience import Clock
from geartrain.cluster.phase import Phase, hash_of, is_live, observe

START = 1_795_953_600.0
HAPPENINGS = frozenset(["admit", "run", "suspend", "fail", "mistake", "complete", "ruin", "vanish"])


class KilledError(BaseException):
    """SIGKILL: nothing of the launcher runs after it."""


class World:
    """Jobs, time, and what Kueue, Trainer and the nodes do to them."""

    def __init__(self) -> None:
        self.now = START
        self.jobs: dict[str, dict[str, Any]] = {}
        self.exit_code: dict[str, int] = {}
        self.is_whole: dict[str, bool] = {}
        """By hash of a spec: whether the output is there and whole."""
        self.suspended_seconds: dict[str, float] = {}
        """By uid."""
        self.transitions: dict[str, int] = {}
        self.deletions: list[str] = []
        """Names that a launcher deleted."""
        self.made = 0

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for job in self.jobs.values():
            if observe(job).phase is Phase.SUSPENDED:
                self.suspended_seconds[job["metadata"]["uid"]] += seconds

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a job; Kueue's webhook suspends it."""
        name, wanted = manifest["metadata"]["name"], hash_of(manifest)
        if name in self.jobs:
            raise ConflictError(name)
        live = [other for other, job in self.jobs.items() if hash_of(job) == wanted and is_live(job)]
        assert not live, f"{name} would be a second live job of a spec, beside {live}"
        self.made += 1
        uid = f"uid-{self.made}"
        metadata = {**manifest["metadata"], "uid": uid, "creationTimestamp": self.stamp()}
        self.jobs[name] = {
            **manifest,
            "metadata": metadata,
            "spec": {**manifest["spec"], "suspend": True},
            "status": {"conditions": [], "jobsStatus": []},
        }
        self.suspended_seconds[uid], self.transitions[uid] = 0.0, 0
        self.is_whole[str(wanted)] = False
        return self.jobs[name]

    def happen(self, what: str, job: dict[str, Any]) -> None:
        """Change a live job: admit, run, suspend, fail, mistake, complete, ruin or vanish."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if what == "vanish":
            del self.jobs[name]
            return
        if not is_live(job):
            return
        if what not in ("admit", "suspend") and observe(job).phase is Phase.SUSPENDED:
            self.happen("admit", job)  # between two looks
        if what in ("admit", "suspend"):
            self.transitions[uid] += 1
            job["spec"]["suspend"] = what == "suspend"
            self._set(job, "Suspended", "True" if what == "suspend" else "False")
            job["status"]["jobsStatus"] = []
        elif what == "run":
            job["status"]["jobsStatus"] = [{"name": "node", "ready": 1, "succeeded": 0}]
        elif what in ("fail", "mistake"):
            self.exit_code[uid] = 2 if what == "mistake" else 137
            self._set(job, "Failed", "True")
        else:
            self.is_whole[str(hash_of(job))] = what == "complete"
            self._set(job, "Complete", "True")
            if what == "ruin":
                return
            job["status"]["conditions"].append({"type": "Novel", "status": "True"})

    def live(self) -> list[dict[str, Any]]:
        """Jobs that train or may yet."""
        return [job for job in self.jobs.values() if is_live(job)]

    def stamp(self) -> str:
        """The time, as a server writes it."""
        return datetime.fromtimestamp(self.now, UTC).isoformat().replace("+00:00", "Z")

    def _set(self, job: dict[str, Any], kind: str, status: str) -> None:
        others = [condition for condition in job["status"]["conditions"] if condition["type"] != kind]
        one = {"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": self.stamp()}
        job["status"]["conditions"] = [one, *others] if len(others) % 2 else [*others, one]


class SimulatedCluster:
    """The world through one launcher's API. Implements `interface.Cluster`.

    Args:
        world: shared by all launchers.
        script: what happens at each call; when it is used up the launcher is killed, unless there is an `otherwise`.
        others: for each name in the script that starts with "launch", runs another launcher.
        otherwise: what happens once the script is used up, at calls about the job itself.
    """

    def __init__(
        self,
        world: World,
        script: Sequence[str],
        *,
        others: Callable[[str], None] = lambda _: None,
        otherwise: Iterator[str] | None = None,
    ) -> None:
        self.world, self.others = world, others
        self._script = iter(script)
        self._otherwise = otherwise
        self.stopping = False
        self.held: set[str] = set()
        """Ids of the jobs that this launcher has created or looked at by name."""

    def clock(self) -> Clock:
        """Time in which sleeping is all that takes any."""
        world = self.world
        return Clock(lambda: world.now - START, lambda: world.now, world.pass_time, lambda: self.stopping)

    def create(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._call(lambda: self._hold(self.world.create(manifest)))

    def get(self, name: str) -> Mapping[str, Any]:
        return self._call(lambda: self._hold(self._found(name)))

    def find(self, selector: str) -> Sequence[Mapping[str, Any]]:
        wanted = dict(pair.split("=") for pair in selector.split(",")).items()
        jobs = self.world.jobs
        return self._call(
            lambda: [jobs[name] for name in sorted(jobs) if wanted <= jobs[name]["metadata"]["labels"].items()]
        )

    def delete(self, name: str, uid: str) -> None:
        def remove() -> None:
            if self._found(name)["metadata"]["uid"] != uid:
                raise ConflictError(name)
            self.world.deletions.append(name)
            del self.world.jobs[name]

        self._call(remove)

    def pods(self, name: str) -> Sequence[PodState]:
        job = self._call(lambda: self._found(name), aside=True)
        return [PodState(f"{name}-node-0-0", 0, self.world.exit_code.get(job["metadata"]["uid"]), "", "")]

    def log_tail(self, name: str, lines: int) -> str:
        return self._call(lambda: f"log of {name}", aside=True)

    def events(self, name: str) -> Sequence[Event]:
        return self._call(lambda: (), aside=True)

    def _found(self, name: str) -> dict[str, Any]:
        if name not in self.world.jobs:
            raise NotFoundError(name)
        return self.world.jobs[name]

    def _hold(self, job: dict[str, Any]) -> dict[str, Any]:
        self.held.add(job["metadata"]["uid"])
        return job

    def _call(self, work: Callable[[], Any], *, aside: bool = False) -> Any:
        step = next(self._script, None)
        if step is None and self._otherwise is not None:
            step = "ok" if aside else next(self._otherwise)
        step = step or "kill"
        if step == "kill":
            raise KilledError
        if step == "trouble":
            self._fail(step, work)
        if step == "stop":
            self.stopping = True
        if step.startswith("launch"):
            self.others(step)
        if step in HAPPENINGS:
            for job in self.world.live():
                self.world.happen(step, job)
        if step == "lost":
            self._fail(step, work)
        # what a server answers does not change afterwards
        answer = _copy(work())
        if step == "kill after":
            raise KilledError
        return answer

    def _fail(self, step: str, work: Callable[[], Any]) -> None:
        """Fail as the script says: without doing anything, or with the answer lost."""
        if step == "trouble":
            raise ServerFaultError("HTTP 500")
        work()
        raise NoAnswerError("no answer in time")


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value
