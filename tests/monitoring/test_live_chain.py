"""A trainer falls ill, and somebody is told why: exporter, Prometheus, Alertmanager and a listener, all of them real.

The rules are those of the cluster with shorter times (`chain.PACE`).
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from geartrain import live
from geartrain.errors import UserError
from geartrain.monitoring.alert import PREFIX
from geartrain.ranks import ALONE
from geartrain.telemetry.serving import LINGER, PORT, exporting
from geartrain.training.policy import PolicyTrainer
from tests.monitoring import faults
from tests.monitoring.chain import Chain, chain

pytestmark = pytest.mark.slow
POD = {PORT: "0", LINGER: "30"}
"""What the environment of a pod says; here of a port that is free."""
FAULTS: dict[str, tuple[Callable[[Path], PolicyTrainer], str]] = {
    "NonFinite": (faults.not_finite, "steps or tokens within 15s were NaN"),
    "TrainingStalled": (faults.stalled, "has told nothing for"),
    "EntropyCollapse": (faults.one_word, "less than 10% of what it was at the start"),
    "RewardHacking": (faults.hacked, "success on held-out tasks has fallen"),
    "ZeroToolCollapse": (faults.guessing, "points less at the start"),
}
"""Alert -> the fault that it is to tell of, and words of what it says."""


class SeenError(Exception):
    """What the run was to show has been seen."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with chain(tmp_path_factory.mktemp("chain")) as started:
        yield started


def _train(
    watched: Chain, trainer: PolicyTrainer, folder: Path, *, run: str, stop: Callable[[str], bool]
) -> tuple[str, UserError | None]:
    """Train as a stage does, scraped, to the end or until `stop`; return the exporter's name and how it failed."""
    parameters = {"policy": trainer.section.model_dump(mode="json")}
    known = {"stage": "policy", "key": 16 * "0", "run": run, "pid": os.getpid(), "parameters": parameters}
    instance = ""

    def look(record: Any) -> None:
        if stop(instance):
            raise SeenError

    try:
        with exporting("policy", ALONE, POD) as endpoint:
            assert endpoint is not None
            instance = watched.watch(endpoint.port)
            with live.telling(folder / "live.jsonl", **known):
                trainer.run(look)
    except SeenError:
        pass
    except UserError as error:
        return instance, error
    return instance, None


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_its_reason_and_the_alert_ends_with_the_run(
    name: str, watched: Chain, tmp_path: Path
) -> None:
    make, words = FAULTS[name]
    torch.manual_seed(0)
    trainer = make(tmp_path)
    hang = getattr(trainer.world, "hang", None)
    if hang is not None:
        threading.Thread(target=_release, args=(watched, hang), daemon=True).start()

    def stop(instance: str) -> bool:  # gradients that are not finite end a run by themselves
        return name != "NonFinite" and PREFIX + name in watched.inbox.of(instance)

    instance, error = _train(watched, trainer, tmp_path, run=name, stop=stop)
    told = watched.inbox.wait(instance, PREFIX + name)
    assert words in told["annotations"]["description"]
    assert f"Run {name}." in told["annotations"]["description"] or error is not None
    assert told["labels"]["stage"] == "policy"
    assert (error is not None) is (name == "NonFinite"), error
    if error is not None:
        assert "training diverged" in str(error)
        watched.inbox.wait(instance, PREFIX + "StageFailed")
    watched.forget()
    watched.inbox.wait(instance, PREFIX + name, "resolved")


def _release(watched: Chain, hang: threading.Event) -> None:
    watched.inbox.wait_for_next(PREFIX + "TrainingStalled")
    hang.set()


def test_nobody_is_told_anything_of_a_healthy_run(watched: Chain, tmp_path: Path) -> None:
    torch.manual_seed(0)

    def stop(instance: str) -> bool:  # after fifteen seconds: longer than any patience
        return bool(watched.ask(f'count_over_time(geartrain_stage_running{{instance="{instance}"}}[1h]) >= 60'))

    instance, error = _train(watched, faults.healthy(tmp_path), tmp_path, run="healthy", stop=stop)
    assert error is None
    (seen,) = watched.ask(f'max_over_time(geartrain_train_iteration{{instance="{instance}"}}[1h])')
    assert float(seen["value"][1]) > 2 * 3  # enough for every rule that compares now with the start
    assert watched.ask(f'max_over_time(ALERTS{{instance="{instance}",alertstate="firing"}}[1h])') == []
    watched.forget()
    assert watched.inbox.of(instance) == {}
