from pathlib import Path

import pytest

from geartrain import walkthrough
from geartrain.config import Config, EnvironmentSection
from geartrain.errors import UserError

ROOT = Path(__file__).parents[2]
CONFIG = Config(environment=EnvironmentSection(source=ROOT / "data/raw/chinook.json"))


def test_the_expert_solves_the_task_that_is_shown(tmp_path: Path) -> None:
    with walkthrough.open_environment(CONFIG, tmp_path / "no-tasks-yet", "val") as (environment, tasks):
        episode = list(walkthrough.play_expert(environment, tasks[0], seed=0, max_turns=100))
        tools = list(walkthrough.describe_tools(environment))
    assert [speaker for speaker, _ in episode[:3]] == ["system", "user", "assistant"]
    assert tasks[0].prompt in episode[1][1]
    assert episode[-1] == ("verdict", "success")
    assert any(line.startswith("query_database(sql): ") for line in tools)


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="no split 'vall'; there are train, val"),
        walkthrough.open_environment(CONFIG, tmp_path, "vall"),
    ):
        pass
