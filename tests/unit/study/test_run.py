"""How a study runs: shared stages once, linked; what is finished is not run again; a failure stops no other cell."""

from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from geartrain import artifacts, workspace
from geartrain.config import Config
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, UserError
from geartrain.lineage import events
from geartrain.stages.stage import FOLDERS, ORDER, load_stage
from geartrain.study import run
from geartrain.study.schema import Cell, Plan, load_study


class Stages:
    """Writes artifacts of the right making instead of training; remembers what it made, and fails where it is told."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.failing: dict[str, int] = {}

    def run_direct(
        self, folder: Path, config: Config, until: str, say: Callable[[str], None], *, output: IO[str]
    ) -> int:
        for stage in ORDER[: ORDER.index(until) + 1]:
            if workspace.is_current(folder, stage, config):
                continue
            name = f"{folder.parent.parent.name}/{folder.parent.name}/{folder.name}:{stage}"
            log = folder / ".geartrain/lineage"
            if name in self.failing:
                reason = {"error": {"type": "UserError", "message": "too steep"}}
                events.emit(log, "FAIL", run_id=events.new_run_id(), job=stage, inputs={}, outputs={}, facets=reason)
                return self.failing[name]
            self.made.append(name)
            target, spec = folder / FOLDERS[stage], load_stage(stage)
            target.mkdir(parents=True, exist_ok=True)
            (target / "content.txt").write_text(f"{name} {spec.parameters(config)}")
            read = {i: artifacts.read_manifest(folder / FOLDERS[i]) for i in spec.inputs}
            known = {"parameters": spec.parameters(config), "inputs": {i: one.digest for i, one in read.items()}}
            ancestors = {digest: i for one in read.values() for digest, i in artifacts.origins(one).items()}
            artifacts.write_manifest(target, stage=stage, **known, metrics={}, ancestors=ancestors)
        return 0


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    fake = Stages()
    monkeypatch.setattr(run, "run_direct", fake.run_direct)
    return fake


@pytest.fixture
def small(write: Callable[..., Path]) -> Plan:
    return load_study(write(seeds=[0, 1], environments=["twophase"], jobs=2))


def test_shared_stages_run_once_and_every_cell_accepts_them(small: Plan, stages: Stages) -> None:
    assert run.run_study(small, print) == 0
    assert len(stages.made) == 2 * (len(run.SHARED) + 3 * len(run.OWN))
    for seed in (0, 1):
        assert [n for n in stages.made if n.startswith(f"twophase/seed-{seed}/base")] == [
            f"twophase/seed-{seed}/base:{stage}" for stage in run.SHARED
        ]
    for cell in small.cells():
        assert run.is_finished(small, cell)
        link = small.folder(cell) / FOLDERS["warm_start"]
        assert link.samefile(small.folder(cell.base) / FOLDERS["warm_start"])
        assert not link.readlink().is_absolute()  # the folder can be moved as a whole


def test_what_is_finished_is_not_run_again(small: Plan, stages: Stages, capsys: pytest.CaptureFixture[str]) -> None:
    run.run_study(small, print)
    stages.made.clear()
    assert run.run_study(small, print) == 0
    assert stages.made == []
    assert "cells: 6 of 6 are finished already" in capsys.readouterr().out


def test_a_changed_variant_runs_alone_and_changed_ground_runs_all(
    write: Callable[..., Path], small: Plan, stages: Stages
) -> None:
    run.run_study(small, print)
    stages.made.clear()
    variants = {**small.study.variants, "moved": {"policy.recipe": "rloo"}}
    changes = {"seeds": [0, 1], "environments": ["twophase"], "variants": variants}
    run.run_study(load_study(write(**changes)), print)
    assert sorted(stages.made) == [f"twophase/seed-{s}/moved:{stage}" for s in (0, 1) for stage in sorted(run.OWN)]
    stages.made.clear()
    again = load_study(write(**changes, settings={"warm_start.demonstrations": 3}))
    assert not run.is_finished(again, Cell("twophase", 0, "moved"))
    assert run.why_unfinished(again, Cell("twophase", 0, "moved")).startswith("was made with other settings")
    run.run_study(again, print)
    assert "twophase/seed-0/base:warm_start" in stages.made
    assert "twophase/seed-0/base:tasks" not in stages.made
    assert "twophase/seed-1/plain:policy" in stages.made


def test_a_failed_cell_is_recorded_stops_no_other_and_is_tried_again(small: Plan, stages: Stages) -> None:
    stages.failing = {"twophase/seed-0/moved:policy": EXIT_USER}
    assert run.run_study(small, print) == EXIT_USER
    failed = Cell("twophase", 0, "moved")
    assert run.why_unfinished(small, failed) == "failed in stage policy: too steep"
    assert [cell for cell in small.cells() if not run.is_finished(small, cell)] == [failed]
    stages.failing = {}
    stages.made.clear()
    assert run.run_study(small, print) == 0
    assert stages.made == ["twophase/seed-0/moved:policy", "twophase/seed-0/moved:evaluation"]
    assert not (small.folder(failed) / run.FAILED).exists()


def test_without_its_base_a_cell_is_not_tried_and_says_why(small: Plan, stages: Stages) -> None:
    stages.failing = {"twophase/seed-1/base:collect": EXIT_USER}
    assert run.run_study(small, print) == EXIT_USER
    assert not [name for name in stages.made if name.startswith("twophase/seed-1") and "base" not in name]
    why = run.why_unfinished(small, Cell("twophase", 1, "plain"))
    assert why == "failed in stage collect: twophase/seed-1/base failed, see there"
    assert run.is_finished(small, Cell("twophase", 0, "moved"))


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((EXIT_USER, EXIT_INFRASTRUCTURE), EXIT_INFRASTRUCTURE), ((EXIT_INFRASTRUCTURE, 1), 1), ((EXIT_USER, 137), 1)],
)
def test_the_exit_code_is_that_of_the_gravest_failure(
    small: Plan, stages: Stages, codes: tuple[int, int], expected: int
) -> None:
    stages.failing = dict(zip(("twophase/seed-0/moved:policy", "twophase/seed-1/even:evaluation"), codes, strict=True))
    assert run.run_study(small, print) == expected


def test_results_where_a_link_belongs_are_not_deleted(small: Plan, stages: Stages) -> None:
    mine = small.folder(Cell("twophase", 0, "plain")) / FOLDERS["tasks"]
    mine.mkdir(parents=True)
    with pytest.raises(UserError, match="holds results of its own"):
        run.run_study(small, print)
    assert (mine.is_dir(), stages.made) == (True, [])
