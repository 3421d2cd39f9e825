import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain import artifacts, withdrawals, workspace
from geartrain.config import Config, parse_config
from geartrain.config_file import load_config
from geartrain.errors import UserError
from geartrain.stages.stage import FOLDERS

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "profiles/smoke.yaml"


def test_settings_reach_into_sections_and_keep_their_types() -> None:
    record = workspace.compose(SMOKE, ["policy.sampling.temperature=0.5", "seed=7", "policy.recipe=grpo"])
    assert (record["policy"]["sampling"]["temperature"], record["seed"], record["policy"]["recipe"]) == (0.5, 7, "grpo")


def test_a_setting_below_a_value_is_refused() -> None:
    with pytest.raises(UserError, match="'seed' is a value, not a section"):
        workspace.compose(SMOKE, ["seed.x=1"])


def test_a_workspace_gets_its_parameters_and_the_raw_data(tmp_path: Path) -> None:
    record = workspace.compose(SMOKE, ["seed=7"])
    workspace.prepare(tmp_path / "new", record, made_from="smoke --set seed=7")
    assert load_config(tmp_path / "new/params.yaml").seed == 7
    source = load_config(SMOKE).environment.source
    if (ROOT / source).exists():
        assert (tmp_path / "new" / source).samefile(ROOT / source)


def test_parameters_that_say_the_same_are_left_alone(tmp_path: Path) -> None:
    record = workspace.compose(SMOKE, [])
    (tmp_path / "params.yaml").write_text("# my notes\n" + yaml.safe_dump(record))
    workspace.prepare(tmp_path, record, made_from="smoke")
    assert (tmp_path / "params.yaml").read_text().startswith("# my notes")


def test_parameters_of_somebody_s_own_are_not_overwritten(tmp_path: Path) -> None:
    record = workspace.compose(SMOKE, [])
    (tmp_path / "params.yaml").write_text("# my notes\n" + yaml.safe_dump(record))
    with pytest.raises(UserError, match="is not one of ours to overwrite"):
        workspace.prepare(tmp_path, workspace.compose(SMOKE, ["seed=9"]), made_from="smoke")
    assert (tmp_path / "params.yaml").read_text().startswith("# my notes")
    workspace.prepare(tmp_path / "ours", record, made_from="smoke")
    workspace.prepare(tmp_path / "ours", workspace.compose(SMOKE, ["seed=9"]), made_from="smoke")
    assert load_config(tmp_path / "ours/params.yaml").seed == 9


@pytest.mark.parametrize("setting", ["policy.iterations=[1", "policy.iterations={a: b", "seed=2001-13-45"])
def test_a_setting_that_is_no_yaml_is_named(setting: str) -> None:
    with pytest.raises(UserError, match=r"--set .*: not YAML"):
        workspace.compose(SMOKE, [setting])


@pytest.mark.parametrize(
    ("setting", "said"), [("collect.tasks=99999", "exceeds tasks.train"), ("environment.source=nope.json", "nope.json")]
)
def test_a_setting_that_cannot_run_writes_nothing(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        workspace.prepare(tmp_path / "new", workspace.compose(SMOKE, [setting]), made_from=setting)
    assert list(tmp_path.iterdir()) == []


def finish(root: Path, stage: str, config: Config, inputs: dict[str, str]) -> str:
    """Put a finished artifact in a workspace, as a stage would; return its digest."""
    folder = root / FOLDERS[stage]
    folder.mkdir(parents=True)
    (folder / "data").write_text(stage)
    whole = config.model_dump(mode="json")
    parameters: dict[str, Any] = {name: whole[name] for name in ("seed", "threads", stage)}
    return artifacts.write_manifest(folder, stage=stage, parameters=parameters, inputs=inputs, metrics={}).digest


def test_an_output_is_current_until_its_parameters_inputs_or_bytes_change(tmp_path: Path) -> None:
    config = Config()
    digest = finish(tmp_path, "collect", config, {})
    finish(tmp_path, "preferences", config, {"collect": digest})
    assert workspace.is_current(tmp_path, "preferences", config)
    changed = config.model_copy(update={"preferences": config.preferences.model_copy(update={"pairs_per_task": 99})})
    assert not workspace.is_current(tmp_path, "preferences", changed)
    assert workspace.is_current(tmp_path, "collect", changed)
    assert not workspace.is_current(tmp_path, "critic", config)
    finish(tmp_path, "critic", config, {"no stage": "a"})
    assert not workspace.is_current(tmp_path, "critic", config)

    manifest = tmp_path / FOLDERS["collect"] / "manifest.json"
    untouched = manifest.read_text()
    manifest.write_text(untouched.replace('"data": "', '"data": "0'))
    assert not workspace.is_current(tmp_path, "preferences", config)
    manifest.write_text(untouched)
    assert workspace.is_current(tmp_path, "preferences", config)
    (tmp_path / FOLDERS["preferences"] / "data").write_text("torn")
    assert not workspace.is_current(tmp_path, "preferences", config)


def test_an_output_is_not_current_once_its_raw_data_changed_or_was_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_config({"environment": {"source": "raw.json"}}, source="test")
    raw, stones = tmp_path / "raw.json", tmp_path / "withdrawn"
    raw.write_text("[]")
    stones.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, str(stones))
    digest = artifacts.file_sha256(raw)
    made = finish(tmp_path, "tasks", config, {"environment.source": digest})
    finish(tmp_path, "collect", config, {"tasks": made})
    assert workspace.is_current(tmp_path, "tasks", config)
    raw.write_text("[1]")
    assert not workspace.is_current(tmp_path, "tasks", config)
    raw.write_text("[]")
    withdrawals.record(stones, made, "withdraw", name="tasks", reason="why", by="ada", at="2026-03-01")
    assert workspace.is_current(tmp_path, "tasks", config), "what is withdrawn itself is refused by who reads it"
    assert not workspace.is_current(tmp_path, "collect", config)


HOLD = """
import sys
from geartrain.workspace import exclusive
with exclusive("policy"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_waits_for_the_stage_and_says_so(tmp_path: Path) -> None:
    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", HOLD], cwd=tmp_path, text=True, stdin=-1, stdout=-1, stderr=-1)

    first, second = start(), None
    with first:
        assert first.stdout.readline() == "held\n"
        with start() as second:
            assert second.stderr.readline() == "policy: another process is at work on it here; waiting for it to end\n"
            first.kill()  # a lock must not outlive its holder, however that ends
            assert second.communicate("")[0] == "held\n"
