"""A small study on disk, and finished cells of made-up numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain.algorithms.credit_scores import score_by_phase
from geartrain.study.collect import BEHAVIOUR, TRAINING, CellResult
from geartrain.study.credit_tables import CREDITED
from geartrain.study.curves import Curve
from geartrain.study.exact import CreditMoment
from geartrain.study.schema import Cell, Plan, load_study

ROOT = Path(__file__).parents[3]
RECORD: dict[str, Any] = {
    "profile": str(ROOT / "profiles/smoke.yaml"),
    "seeds": [0, 1, 2],
    "environments": ["twophase", "analyst"],
    "control": "plain",
    "variants": {
        "plain": {"policy.recipe": "grpo"},
        "moved": {"policy.recipe": "gear_b", "policy.settings.gear_b.kappa": 0.5},
        "even": {"policy.recipe": "fixed_weights"},
    },
    "reach": [0.5, 0.95],
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write the study, with changes, and return its file."""

    def changed(**changes: Any) -> Path:
        path = tmp_path / "tiny.yaml"
        record = {**RECORD, "output": str(tmp_path / "out"), **changes}
        path.write_text(
            yaml.safe_dump({key: value for key, value in record.items() if value is not None}, sort_keys=False)
        )
        return path

    return changed


@pytest.fixture
def plan(write: Callable[..., Path]) -> Plan:
    return load_study(write())


@pytest.fixture
def make_result() -> Callable[..., CellResult]:
    """Make a finished cell whose test tasks succeed as the string of 0 and 1 says."""

    def make(variant: str, seed: int, test: str, end: float = 0.8, environment: str = "twophase") -> CellResult:
        score = score_by_phase(
            [1.0, 0.5, 0.0], [0.3, 0.2, -0.1], ["plan"] * 3, key_N=[1, 0, 0], episode_N=list("aab"), k=1
        )
        return CellResult(
            cell=Cell(environment, seed, variant),
            curve=Curve((0.0, 50.0, 100.0 + seed), (0.2, 0.4, end)),
            environment_steps=100 + seed,
            episodes=20,
            kept_iteration=2,
            success={("test", "sampled"): {f"t{i}": float(c) for i, c in enumerate(test)}},
            behaviour=dict.fromkeys(BEHAVIOUR, 0.25),
            training=dict.fromkeys(TRAINING, None),
            credit={"after": CreditMoment(score, {"all": 1.0, "plan": 1.0}, 2 / 3)},
            phases={"plan_success": 0.5},
            seconds=30.0,
            alarms=["tools"] if end < 0.5 else [],
            code="c0de",
            critic={"correlation": 0.5, "correlation_contrast": None},
            outcomes={"before": {"failure": dict.fromkeys(("turns", *CREDITED), 0.125)}},
            phase_curves={"plan_success": Curve((0.0, 50.0), (0.25, end))},
        )

    return make
