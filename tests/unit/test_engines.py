import signal
import subprocess
import sys
from pathlib import Path

import pytest

from geartrain import engines
from geartrain.config import Config
from geartrain.errors import UserError

PARENT = """
import os, subprocess, sys
child = "from geartrain import engines; engines.die_with_parent(); print('ready', flush=True); input()"
process = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE)
process.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux only")
def test_a_stage_dies_with_the_engine_that_started_it() -> None:
    variables = engines.process_environment(1, tied=True)
    # the pipe's write end is shared by parent and child: reading to its end returns when both are gone
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=variables) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.send_signal(signal.SIGKILL)
        assert parent.stdout.read() == ""


ORCHESTRATED = """
import os, sys
from pathlib import Path
from geartrain.processes import run_group
child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'print(1, flush=True); input()']).wait()"
run_group([sys.executable, "-c", child], cwd=Path(), env=dict(os.environ))
"""


def test_an_orchestrator_and_its_tasks_end_with_the_run_that_is_told_to_stop() -> None:
    # the pipe is shared by all three: reading to its end returns when all are gone
    with subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "1\n"
        parent.terminate()
        assert parent.stdout.read() == ""
    assert parent.returncode == 128 + signal.SIGTERM


def test_a_configuration_that_changes_under_a_run_stops_it(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 1\n")
    with pytest.raises(UserError, match="was changed during the run"):
        engines.run_direct(tmp_path, Config(), "tasks", print)


def test_what_the_user_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    variables = engines.process_environment(2)
    assert (variables["OMP_NUM_THREADS"], variables["GOMP_SPINCOUNT"]) == ("7", "20000")


def test_dvc_needs_its_graph(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no dvc.yaml"):
        engines.run_dvc(tmp_path, Config(), "promotion", print)


def test_kubeflow_runs_the_whole_pipeline_only(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--until collect"):
        engines.run_kfp(tmp_path, Config(), "collect", print)


@pytest.mark.parametrize(
    ("raised", "code"), [("UserError", 2), ("InfrastructureError", 75), ("ValueError", 1), (None, 1)]
)
def test_dvc_s_exit_code_is_that_of_the_error(raised: str | None, code: int, tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "from pathlib import Path\n"
        "from geartrain import errors\n"
        "from geartrain.lineage.events import Data\n"
        "from geartrain.lineage.recording import Task, recorded\n"
        f"task = Task('tasks', '{'0' * 64}', (), Data('tasks', ''), {{}}, Path('work'))\n"
        f"with recorded(Path('.geartrain/lineage'), task):\n    raise getattr(errors, '{raised}', ValueError)('told')\n"
    )
    command = "python tool.py" if raised else "false"
    (tmp_path / "dvc.yaml").write_text(f"stages:\n  tasks:\n    cmd: {command}\n    deps: [tool.py]\n")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    assert engines.run_dvc(tmp_path, Config(), "tasks", print) == code


@pytest.mark.parametrize(("ended", "code"), [(2, 2), (75, 75), (255, 1), (0, 0)])
def test_a_step_that_is_no_stage_ends_the_run_with_its_code(ended: int, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"raise SystemExit({ended})"]
    assert engines._orchestrate(tmp_path, command, {}) == code
