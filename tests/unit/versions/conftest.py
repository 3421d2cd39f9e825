"""A registry to read from; what git and DVC find elsewhere on this machine is kept out."""

import os
import sys
from pathlib import Path

import pytest

from geartrain import withdrawals
from tests.fakes.dvc_projects import seal, shell, start


@pytest.fixture(scope="session")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which git and DVC know nobody's settings."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n")
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(home)}


@pytest.fixture(autouse=True)
def _apart(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv(withdrawals.PLACES, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Path:
    """A git repository with a data set in two versions, tagged v1 and v2, and pushed to a folder."""
    root = tmp_path_factory.mktemp("registry")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        project = start(root / "project", str(root / "remote"), git=True)
        for version in ("v1", "v2"):
            seal(project / "data/rollouts", version)
            shell(project, "dvc add -q data/rollouts", "git add -A", f"git commit -qm {version}", f"git tag {version}")
            shell(project, "dvc push -q --no-run-cache")
    return project
