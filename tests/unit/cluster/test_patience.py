"""SIGTERM reaches a launcher that waits, and leaves a job that the next one adopts."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from geartrain.cluster.api import Kubernetes
from geartrain.cluster.launcher import launch
from geartrain.cluster.patience import Patience, StoppedError, until_terminated
from geartrain.cluster.trainjob import TrainingJob
from geartrain.errors import EXIT_INFRASTRUCTURE, InfrastructureError, UserError
from tests.fakes.bench import IMAGE, FakeTime
from tests.fakes.kubernetes_server import JOBS, KubernetesServer, set_conditions

LAUNCHER = """
    import json
    import sys
    from pathlib import Path
    from geartrain.cluster import api
    from geartrain.cluster.launcher import launch
    from geartrain.cluster.patience import until_terminated
    from geartrain.cluster.trainjob import TrainingJob

    job = TrainingJob("run-1", "policy", sys.argv[2], ("train",), nodes=1, processes_per_node=1)
    cluster, folder = api.connect(kubeconfig=sys.argv[1]), Path(sys.argv[3])
    record = lambda name, note: (folder / name).write_text(json.dumps(note))
    with until_terminated() as clock:
        outcome = launch(job, cluster, lambda: None, clock, record=record)
    print(outcome.reason)
    sys.exit(outcome.exit_code)
"""


def test_sigterm_in_the_middle_of_a_pause_leaves_a_job_to_adopt(
    server: KubernetesServer, cluster: Kubernetes, tmp_path: Path, time: FakeTime
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(LAUNCHER), str(tmp_path / "kubeconfig"), IMAGE, str(record)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(3):  # the list, the create, and why the pods do not run: then it pauses for 15 s
            assert server.asked.acquire(timeout=60)
        process.send_signal(signal.SIGTERM)
        words, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_INFRASTRUCTURE
    assert "told to stop" in words
    assert json.loads((record / "status.json").read_text())["outcome"]["exit_code"] == EXIT_INFRASTRUCTURE
    (name,) = server.jobs
    set_conditions(("Complete", "True", ""))(server.jobs[name])
    job = TrainingJob("run-1", "policy", IMAGE, ("train",), nodes=1, processes_per_node=1)
    outcome = launch(job, cluster, lambda: None, time.clock())
    assert (outcome.exit_code, outcome.adopted, outcome.name) == (0, True, name)
    assert [asked.method for asked in server.requests if asked.path == JOBS].count("POST") == 1


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with until_terminated() as clock:
        assert not clock.stopping()
        signal.raise_signal(signal.SIGTERM)
        assert clock.stopping()
        clock.sleep(3600)  # returns at once
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_success_starts_the_count_anew(time: FakeTime) -> None:
    patience = Patience(time.clock(), errors=2, pause_seconds=5)
    for _ in range(3):
        answers = iter([InfrastructureError("a"), InfrastructureError("b"), None])
        patience.run(lambda answers=answers: _raise(next(answers)))
    assert time.pauses == [5, 10] * 3


def test_one_failure_too_many_is_raised_with_the_last_reason(time: FakeTime) -> None:
    patience = Patience(time.clock(), errors=7, pause_seconds=5)
    with pytest.raises(InfrastructureError, match="8 failures in a row, the last: disk"):
        patience.run(lambda: _raise(InfrastructureError("disk")))
    assert time.pauses == [5, 10, 20, 40, 60, 60, 60]


def test_what_a_person_has_to_mend_is_not_repeated(time: FakeTime) -> None:
    with pytest.raises(UserError):
        Patience(time.clock(), errors=7, pause_seconds=5).run(lambda: _raise(UserError("mend it")))
    assert time.pauses == []


def test_a_stop_is_noticed_after_a_pause_and_before_work(time: FakeTime) -> None:
    time.stop_after = 1
    patience = Patience(time.clock(), errors=7, pause_seconds=5)
    with pytest.raises(StoppedError):
        patience.pause(5)
    with pytest.raises(StoppedError):
        patience.run(lambda: pytest.fail("worked"))


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
