"""In CI a test that is skipped is a failed one; only what needs a GPU may be. Some folders are run by name only."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ON_REQUEST = ("parity", "nodes", "images", "pages")
SKIPPED = """
import pytest

def test_ordinary():
    pytest.skip("no browser")

@pytest.mark.gpu
def test_gpu():
    pytest.skip("no GPU")
"""


@pytest.mark.parametrize(("ci", "outcome"), [("true", "1 failed, 1 skipped"), ("", "2 skipped")])
def test_a_skip_fails_in_ci(ci: str, outcome: str, tmp_path: Path) -> None:
    assert outcome in _pytest(tmp_path, SKIPPED, ci)


def test_a_module_that_skips_itself_fails_in_ci(tmp_path: Path) -> None:
    assert "1 error" in _pytest(tmp_path, "import pytest\npytest.importorskip('no_such_package')\n", "true")


def test_goldens_are_not_rewritten_in_ci(tmp_path: Path) -> None:
    assert "--regenerate is refused in CI" in _pytest(tmp_path, "", "true", "--regenerate")


@pytest.mark.parametrize(
    ("named", "collected"),
    [((), ["unit"]), (("tests",), ["unit"]), *(((f"tests/{folder}",), [folder]) for folder in ON_REQUEST)],
)
def test_what_needs_more_than_setup_runs_only_on_request(
    named: tuple[str, ...], collected: list[str], tmp_path: Path
) -> None:
    # without peers, DeepSpeed or an image these tests cannot run, and a test that is skipped is a failed one
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("unit", *ON_REQUEST):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / f"tests/{folder}/test_it.py").write_text("def test_it():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *named,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.split("/")[1] for line in done.stdout.splitlines() if "::" in line] == collected


def _pytest(folder: Path, text: str, ci: str, *options: str) -> str:
    shutil.copy(ROOT / "tests/conftest.py", folder)
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder), *options]
    variables = {**os.environ, "CI": ci}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
