import subprocess
import sys
from pathlib import Path

import pytest

from geartrain.config import EnvironmentSection
from geartrain.environments import build_worlds, load_environment
from geartrain.errors import UserError


def test_loads_by_name(tmp_path: Path) -> None:
    assert load_environment(EnvironmentSection(), tmp_path).name == "analyst"


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    settings = EnvironmentSection.model_construct(name="analist")
    with pytest.raises(UserError, match="did you mean 'analyst'"):
        load_environment(settings, tmp_path)
    with pytest.raises(UserError, match="did you mean 'analyst'"):
        build_worlds(settings, tmp_path, seed=0)


def test_the_registry_loads_no_environment() -> None:
    code = "import sys, geartrain.environments; sys.exit(any('analyst.' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
