"""Launch a training job and see it through: a controller in miniature.

It creates or adopts a TrainJob, watches it, and turns how it ended into an exit code and a reason. A launcher may be
killed at any moment: the job goes on, and the next launcher of that run and stage adopts it.

To cancel from outside, end the KFP run first (else its retry starts another attempt), then delete its jobs by label:
`kubectl delete trainjobs -l <naming.selector(run=…)>`. Nothing in here has to be alive for that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from geartrain.cluster import naming, reasons
from geartrain.cluster.adoption import Acquired, acquire
from geartrain.cluster.budgets import Budgets, Ledger
from geartrain.cluster.interface import Cluster, Event, Manifest, NotFoundError, PodState
from geartrain.cluster.patience import Clock, Patience, StoppedError
from geartrain.cluster.phase import Observation, Phase, name_of, observe, uid_of
from geartrain.cluster.trainjob import FINAL_REASONS, TrainingJob, manifest
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_QUEUE, EXIT_USER, GeartrainError, UserError

SUBMITTED, STATUS = "trainjob.json", "status.json"
T = TypeVar("T")
Verify = Callable[[], object]
"""Checks the manifest of the training's output. Raises UserError if it is not whole, InfrastructureError if the place
where it lies cannot be read now."""
Record = Callable[[str, Mapping[str, Any]], object]
"""Keeps a JSON object under a name: `SUBMITTED` or `STATUS`."""


@dataclass(frozen=True)
class Watch:
    """How a job is watched."""

    budgets: Budgets = field(default_factory=Budgets)
    poll_seconds: float = 15.0
    errors: int = 10
    """Failing API requests in a row that are borne."""
    explain_seconds: float = 300.0
    """How often a waiting job is asked why: events are kept for an hour only."""
    log_lines: int = 100
    delete_when_given_up: bool = False
    """Delete the job on a used-up budget or SIGTERM; otherwise it is left for the next launcher to adopt."""


@dataclass(frozen=True)
class Outcome:
    """How a launch ended."""

    exit_code: int
    """0: complete and verified; 2: for a person to mend; 75: try again; 76: the queue was too long."""
    reason: str
    name: str | None = None
    """Of the TrainJob; None if there is none."""
    attempt: int | None = None
    phase: str | None = None
    """Last seen."""
    adopted: bool = False
    suspends: int = 0
    queued_seconds: float = 0.0
    pending_seconds: float = 0.0
    running_seconds: float = 0.0
    log: str = ""
    """Last lines of rank 0."""


def launch(
    job: TrainingJob,
    cluster: Cluster,
    verify: Verify,
    clock: Clock,
    *,
    watch: Watch | None = None,
    record: Record | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run a job to its end and say how it ended; raises nothing that is an error of geartrain's.

    Args:
        job: what to train.
        cluster: where; its errors become part of the outcome.
        verify: checks the output before the outcome may be 0.
        clock: `patience.until_terminated()` outside of tests.
        watch: budgets and rhythm; None takes the usual ones.
        record: keeps the manifest of the job that is watched, and in the end the outcome with the job's last status;
            None keeps nothing.
        say: gets a line of text whenever the phase changes.
    """
    return _Launch(job, cluster, verify, clock, watch or Watch(), record, say).run()


class _Launch:
    def __init__(
        self,
        job: TrainingJob,
        cluster: Cluster,
        verify: Verify,
        clock: Clock,
        watch: Watch,
        record: Record | None,
        say: Callable[[str], None],
    ) -> None:
        self.job, self.cluster, self.verify, self.clock = job, cluster, verify, clock
        self.watch, self.record, self.say = watch, record, say
        self.patience = Patience(clock, errors=watch.errors, pause_seconds=watch.poll_seconds)
        self.ledger = Ledger(watch.budgets, step_seconds=watch.poll_seconds)
        self.held: Acquired | None = None
        self.body: Manifest = {}
        self.seen: Observation | None = None
        self.why = ""
        """What a waiting job waits for, as last heard."""
        self.asked = float("-inf")

    def run(self) -> Outcome:
        try:
            outcome = self._see_through()
        except StoppedError:
            outcome = self._give_up(EXIT_INFRASTRUCTURE, "the launcher was told to stop (SIGTERM)")
        except GeartrainError as error:
            left = "" if self.held is None else f". {self._left()}"
            outcome = self._outcome(error.exit_code, f"{error}{left}")
        self._keep_status(outcome)
        self.say(f"{self.job.stage}: {outcome.reason}")
        return outcome

    def _see_through(self) -> Outcome:
        finished = self._hold()
        if finished is not None:
            return finished
        while True:
            assert self.seen is not None
            if self.seen.phase is Phase.FAILED:
                return self._failed(self.seen)
            if self.seen.phase is Phase.COMPLETE:
                return self._complete()
            if self.ledger.is_overrun():
                return self._overrun(self.seen.phase)
            self._explain()
            self.patience.pause(self.watch.poll_seconds)
            gone = self._look()
            if gone is not None:
                return gone

    def _hold(self) -> Outcome | None:
        """Create or adopt; return the outcome if an earlier launcher's job has completed, and its output is whole."""
        spent: set[str] = set()
        while True:
            held = self.patience.run(lambda: acquire(self.job, self.cluster, spent=spent))
            self.held, self.body, self.seen = held, held.body, observe(held.body)
            if self.record is not None:
                self.record(SUBMITTED, manifest(held.job))
            self.say(f"{self.job.stage}: TrainJob {held.job.name} {'created' if held.created else 'adopted'}")
            wall = None if held.created else self.clock.wall()
            self.ledger.begin(self.seen, monotonic=self.clock.monotonic(), wall=wall)
            if held.created or self.seen.phase is not Phase.COMPLETE:
                return None
            try:
                self.patience.run(self.verify)
            except UserError as error:
                self.say(f"{self.job.stage}: TrainJob {held.job.name} completed, but not its output: {error}")
                spent.add(uid_of(held.body))
            else:
                return self._outcome(0, f"TrainJob {held.job.name} had completed; its output is whole")

    def _look(self) -> Outcome | None:
        """Observe the job; return the outcome if it is not there any more."""
        try:
            body = self.patience.run(lambda: self.cluster.get(self._name()))
        except NotFoundError:
            body = None
        if body is None or uid_of(body) != uid_of(self.body):
            was = "" if self.seen is None else f" while it was {self.seen.phase.value}"
            return self._outcome(
                EXIT_INFRASTRUCTURE, f"TrainJob {self._name()} was deleted{was}, by somebody or with its owner"
            )
        before, self.body, self.seen = self.seen, body, observe(body)
        self.ledger.note(self.seen, monotonic=self.clock.monotonic())
        if before is not None and before.phase is not self.seen.phase:
            self.why, self.asked = "", float("-inf")
            self.say(f"{self.job.stage}: TrainJob {self._name()} is {self.seen.phase.value}")
        return None

    def _complete(self) -> Outcome:
        try:
            self.patience.run(self.verify)
        except GeartrainError as error:
            # to be tried again: the next launcher finds the job complete and its output not, and starts an attempt
            return self._outcome(
                EXIT_INFRASTRUCTURE, f"TrainJob {self._name()} is Complete, but its output is not whole: {error}"
            )
        return self._outcome(0, f"TrainJob {self._name()} is Complete; its output is whole", self._log())

    def _failed(self, seen: Observation) -> Outcome:
        none: Sequence[PodState] = ()
        pods = self._try(lambda: self.patience.run(lambda: self.cluster.pods(self._name())), none)
        # torchrun exits with 1 whatever its workers did, so that 1 does not tell a bug from a broken network
        mistaken = seen.reason in FINAL_REASONS or any(pod.exit_code == EXIT_USER for pod in pods)
        why = reasons.why_failed(seen.reason, seen.message, pods)
        code = EXIT_USER if mistaken else EXIT_INFRASTRUCTURE
        return self._outcome(code, f"TrainJob {self._name()} failed: {why}", self._log())

    def _overrun(self, phase: Phase) -> Outcome:
        self._explain(now=True)
        words = {Phase.SUSPENDED: "queued", Phase.PENDING: "admitted but not running for", Phase.RUNNING: "ran"}
        spent = reasons.duration(self.ledger.spent(phase))
        reason = f"{words[phase]} {spent}" + (f": {self.why}" if self.why else "")
        code = EXIT_QUEUE if phase is Phase.SUSPENDED else EXIT_INFRASTRUCTURE
        return self._give_up(code, reason, "" if phase is Phase.SUSPENDED else self._log())

    def _give_up(self, code: int, reason: str, log: str = "") -> Outcome:
        if self.held is None:
            return self._outcome(code, f"{reason}, before a TrainJob was seen")
        name, uid = self._name(), uid_of(self.body)
        is_over = self.seen is not None and self.seen.phase.is_over  # its result may be whole: nothing to give up
        if is_over or not self.watch.delete_when_given_up:
            return self._outcome(code, f"{reason}. {self._left()}", log)
        try:
            self.cluster.delete(name, uid)
        except GeartrainError as error:
            return self._outcome(code, f"{reason}. TrainJob {name} could not be deleted: {error}", log)
        return self._outcome(code, f"{reason}. TrainJob {name} is deleted", log)

    def _explain(self, *, now: bool = False) -> None:
        """Ask why the job waits, now and then; what cannot be learned is left out."""
        assert self.seen is not None
        time = self.clock.monotonic()
        waits = self.seen.phase in (Phase.SUSPENDED, Phase.PENDING)
        if not waits or (time - self.asked < self.watch.explain_seconds and not now):
            return
        self.asked = time
        if self.seen.phase is Phase.SUSPENDED:
            silence: Sequence[Event] = ()
            found = reasons.why_queued(self._try(lambda: self.cluster.events(self._name()), silence), self.job.queue)
        else:
            none: Sequence[PodState] = ()
            found = reasons.why_not_started(self._try(lambda: self.cluster.pods(self._name()), none))
        if found and found != self.why:
            self.say(f"{self.job.stage}: {found}")
        self.why = found or self.why

    def _log(self) -> str:
        try:
            return self.cluster.log_tail(self._name(), self.watch.log_lines)
        except GeartrainError as error:
            return f"(no log of rank 0: {error})"

    def _try(self, work: Callable[[], T], otherwise: T) -> T:
        try:
            return work()
        except GeartrainError:
            return otherwise

    def _keep_status(self, outcome: Outcome) -> None:
        """Keep how it ended; where that cannot be, it ended all the same."""
        if self.record is None:
            return
        try:
            self.record(STATUS, {"outcome": asdict(outcome), "status": dict(self.body.get("status") or {})})
        except (GeartrainError, StoppedError) as error:
            self.say(f"{self.job.stage}: no record of how the job ended ({error or 'stopped by SIGTERM'})")

    def _left(self) -> str:
        cancel = f"kubectl delete trainjobs -l {naming.selector(run=self.job.run, stage=self.job.stage)}"
        return f"TrainJob {self._name()} is left to go on; the next launcher adopts it, `{cancel}` cancels it"

    def _name(self) -> str:
        return name_of(self.body)

    def _outcome(self, code: int, reason: str, log: str = "") -> Outcome:
        total: Mapping[Phase, Any] = self.ledger.total
        return Outcome(
            exit_code=code,
            reason=reason,
            name=None if self.held is None else self._name(),
            attempt=None if self.held is None else self.held.job.attempt,
            phase=None if self.seen is None else self.seen.phase.value,
            adopted=self.held is not None and not self.held.created,
            suspends=self.ledger.suspends,
            queued_seconds=total[Phase.SUSPENDED],
            pending_seconds=total[Phase.PENDING],
            running_seconds=total[Phase.RUNNING],
            log=log,
        )
