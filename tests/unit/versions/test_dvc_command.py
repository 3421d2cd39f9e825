"""How DVC is called, and what its failures mean: its own texts, as it wrote them."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from geartrain.errors import InfrastructureError, UserError
from geartrain.versions import dvc_command
from geartrain.versions.dvc_command import transfer, transfer_arguments
from tests.fakes.dvc_projects import seal, shell, start


@pytest.mark.parametrize("verb", ["pull", "push", "fetch"])
def test_the_run_cache_is_never_taken_along(verb: dvc_command.Transfer) -> None:
    for options in ({}, {"remote": "r", "jobs": 3}):
        arguments = transfer_arguments(verb, ["data/tasks"], **options)  # type: ignore[arg-type]
        assert arguments[:2] == [verb, "--no-run-cache"]
        assert arguments[-2:] == ["--", "data/tasks"]


def stage(project: Path) -> None:
    """Add a stage, so that there is a run cache."""
    (project / "dvc.yaml").write_text("stages:\n  t:\n    cmd: touch out\n    deps: [data]\n    outs: [out]\n")
    shell(project, "dvc repro -q t")


def test_a_remote_holds_the_data_and_no_run_cache(tmp_path: Path) -> None:
    project = start(tmp_path / "p", str(tmp_path / "remote"), git=False)
    seal(project / "data", "one")
    shell(project, "dvc add -q data")
    stage(project)
    assert (project / ".dvc/cache/runs").is_dir()
    assert "pushed" in transfer("push", [], folder=project)
    assert {path.name for path in (tmp_path / "remote").iterdir()} == {"files"}
    shell(project, "dvc push -q --run-cache")
    assert (tmp_path / "remote/runs").is_dir(), "there was one to send, and the test would have seen it"


def test_a_second_command_in_the_same_clone_is_told_at_once_and_one_in_another_clone_works(tmp_path: Path) -> None:
    projects = [start(tmp_path / name, str(tmp_path / "remote"), git=False) for name in ("one", "two")]
    for number, project in enumerate(projects):
        seal(project / "data", str(number))
        shell(project, "dvc add -q data")
    hold = "import sys, zc.lockfile; lock = zc.lockfile.LockFile(sys.argv[1]); print('held', flush=True); input()"
    command = [sys.executable, "-c", hold, str(projects[0] / ".dvc/tmp/lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InfrastructureError, match=r"another command of DVC is at work in this clone.*a clone each"):
            transfer("push", [], folder=projects[0])
        transfer("push", [], folder=projects[1])
        holder.communicate("\n")
    transfer("push", [], folder=projects[0])


def test_two_clones_send_to_one_remote_at_once(tmp_path: Path) -> None:
    projects = [start(tmp_path / name, str(tmp_path / "remote"), git=False) for name in ("one", "two")]
    for number, project in enumerate(projects):
        seal(project / "data", str(number))
        seal(project / "common", "common")
        shell(project, "dvc add -q data common")
    failures: list[BaseException] = []

    def send(project: Path) -> None:
        try:
            transfer("push", [], folder=project)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(project,)) for project in projects]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for project in projects:
        assert dvc_command.ask(["data", "status", "--not-in-remote"], folder=project) == {}


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("ERROR: failed to push data to the cloud - Unable to acquire lock. Most likely", InfrastructureError, "clone"),
        ("ERROR: '/p/out' is busy, it is being blocked by:\n  (PID 7): dvc repro", InfrastructureError, "PID 7"),
        ('ERROR: unexpected error - Could not connect to the endpoint URL: "x"', InfrastructureError, "try again"),
        ("ERROR: unexpected error - Unable to locate credentials", UserError, "AWS_ACCESS_KEY_ID"),
        ("ERROR: failed to pull data from the cloud - Checkout failed", UserError, "data push"),
        ("ERROR: failed to pull data from the cloud - Can't remove the following unsaved files", UserError, "changed"),
        ("ERROR: unexpected error - s3 is supported, but requires 'dvc-s3' to be installed", UserError, "pip install"),
        ("/usr/bin/python: No module named dvc", UserError, "make setup"),
        ("ERROR: no such thing\n\nHaving any troubles? Hit us up at …", UserError, "no such thing$"),
        ("", UserError, "it said nothing"),
    ],
)
def test_what_a_failure_means(text: str, kind: type[Exception], said: str) -> None:
    failure = dvc_command._failure("pull", text, Path("p"))
    assert type(failure) is kind
    with pytest.raises(kind, match=said):
        raise failure


def test_an_answer_is_parsed(tmp_path: Path) -> None:
    project = start(tmp_path / "p", str(tmp_path / "remote"), git=False)
    assert dvc_command.ask(["data", "status"], folder=project) == {}
    (project / "x.dvc").write_text(json.dumps({"outs": []}))
    with pytest.raises(UserError, match="dvc pull"):
        transfer("pull", ["nothing"], folder=project)
