"""The command line as a person meets it: exit codes, messages that name the mend, nothing started on bad input."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from geartrain import cli
from geartrain.errors import InfrastructureError, UserError

ROOT = Path(__file__).parents[2]


def geartrain(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geartrain", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [(), ("run",), ("stage",), ("report",), ("study",), ("eval",), ("envs",), ("methods",), ("config",)],
)
def test_help_teaches_with_an_example(command: tuple[str, ...]) -> None:
    shown = geartrain(*command, "--help", cwd=ROOT)
    assert shown.returncode == 0
    assert f"geartrain {' '.join(command)}".strip() in shown.stdout


BROKEN = """
seed: x
policy: {iterationz: 3}
polcy: {}
critic: {epochs: 0}
"""


@pytest.mark.parametrize("command", [("config", "check"), ("stage", "tasks"), ("run",)])
def test_a_bad_configuration_is_named_key_by_key_and_starts_nothing(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(BROKEN)
    refused = geartrain(*command, cwd=tmp_path)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "seed: Input should be a valid integer" in refused.stderr
    assert "policy.iterationz: unknown key; did you mean 'iterations'?" in refused.stderr
    assert "polcy: unknown key; did you mean 'policy'?" in refused.stderr
    assert "critic.epochs: Input should be greater than or equal to 1" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def test_a_missing_file_is_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("environment: {source: nowhere.json}\n")
    refused = geartrain("stage", "tasks", cwd=tmp_path)
    assert refused.returncode == 2
    assert "environment.source: no such file: nowhere.json" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stage", "polcy"), "no stage 'polcy'; did you mean 'policy'?"),
        (("run", "--engine", "kpf"), "no engine 'kpf'; did you mean 'kfp'?"),
        (("run", "--until", "evalution"), "no stage 'evalution'; did you mean 'evaluation'?"),
        (
            ("run", "--profile", "smok"),
            "no profile 'smok'; give a path of a YAML file, or one of: demo, smoke",
        ),
        (("run", "--set", "policy.iterations"), "expected section.key=value"),
        (("run", "--set", "policy.iterationz=3"), "policy.iterationz: unknown key; did you mean 'iterations'?"),
        (("stage", "tasks", "--dir", "absent"), "absent: no such folder"),
        (("stage", "tasks", "--input", "policy"), "--input policy: expected name=FOLDER"),
        (("report", "--dir", "absent"), "absent: no such folder"),
        (("study", "absent.yaml"), "absent.yaml: no such file"),
        (("config", "show", "polcy"), "no section 'polcy'; did you mean 'policy'?"),
    ],
)
def test_a_mistake_on_the_command_line_is_answered_with_its_mend(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    refused = geartrain(*arguments, cwd=tmp_path)
    assert (refused.returncode, message in refused.stderr, "Traceback" in refused.stderr) == (2, True, False), (
        refused.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_config_show_prints_what_parses_back_with_the_changes(tmp_path: Path) -> None:
    shown = geartrain("config", "show", "--profile", "smoke", "--set", "policy.iterations=7", cwd=ROOT)
    (tmp_path / "shown.yaml").write_text(shown.stdout)
    assert "  iterations: 7\n" in shown.stdout
    assert geartrain("config", "check", str(tmp_path / "shown.yaml"), cwd=ROOT).stdout.endswith(": valid\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("mend this"), 2),
        (InfrastructureError("try again"), 75),
        (OSError(errno.ENOSPC, "No space left on device", "models/policy"), 75),
        (OSError(errno.EACCES, "Permission denied", "runs"), 2),
        (OSError(errno.ENOTDIR, "Not a directory", "data"), 2),
    ],
)
def test_the_exit_code_says_whether_a_retry_may_help(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(f"error: {error}")


def test_a_run_with_many_settings_gets_a_folder_that_a_disk_can_name() -> None:
    settings = [f"policy.sampling.temperature=0.{n}" for n in range(40)]
    names = {cli._default_folder("smoke", [*settings, last]).name for last in ("seed=1", "seed=2")}
    assert len(names) == 2
    assert all(len(name.encode()) < 255 and name.startswith("smoke+policy") for name in names)
    assert cli._default_folder("smoke", ["seed=1"]) == Path("runs/smoke+seed=1")


def test_a_bug_keeps_its_traceback() -> None:
    def command() -> None:
        raise OSError(errno.ENOENT, "No such file", "weights")

    with pytest.raises(FileNotFoundError):
        cli.main(command)


def test_envs_shows_the_environment_that_is_named_whatever_the_workspace_uses(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("environment: {name: twophase}\n")
    shown = {name: geartrain("envs", name, cwd=tmp_path) for name in ("twophase", "analyst")}
    assert "plan(choice)" in shown["twophase"].stdout
    assert shown["analyst"].returncode == 2  # its raw data is not here, and it says so
    assert "chinook.json" in shown["analyst"].stderr
    at_home = geartrain("envs", "twophase", cwd=ROOT)
    assert "plan(choice)" in at_home.stdout
    assert "query_database" not in at_home.stdout


def test_eval_finds_a_model_in_the_workspace_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs/x/models/policy").mkdir(parents=True)
    found = geartrain("eval", "models/policy", "--dir", "runs/x", cwd=tmp_path)
    assert "no such model" not in found.stderr
    assert "no such model" in geartrain("eval", "models/polic", "--dir", "runs/x", cwd=tmp_path).stderr
