"""SIGKILL at random moments, of DVC, of the stage or of both; `dvc repro` then ends with the same bytes.

The moments are drawn from a seed that is printed; a moment is a stage and a
share of the time that the stage took in the uninterrupted run.
`GEARTRAIN_KILL_SEED=N` repeats one.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from geartrain.lineage.events import read_events, stage_of
from geartrain.stages.stage import ORDER
from tests.e2e.checkout import Checkout, digests, make_checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
VICTIMS = ("dvc", "stage", "group")
POLL_SECONDS = 0.05
REPRO = [sys.executable, "-m", "dvc", "repro"]


@pytest.fixture(scope="module")
def killed(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose run was killed once per victim, at different stages, and then went through."""
    checkout = make_checkout(tmp_path_factory.mktemp("killed"), source=finished.root)
    seconds = _durations(finished.root)
    seed = int(os.environ.get("GEARTRAIN_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    draw = random.Random(seed)
    # the two stages that checkpoint the most are always hit; the third victim's stage is drawn
    stages = [
        "warm_start",
        "policy",
        draw.choice([name for name in ORDER[:-1] if name not in {"warm_start", "policy"}]),
    ]
    victims = draw.sample(VICTIMS, len(VICTIMS))
    for stage, victim in sorted(zip(stages, victims, strict=True), key=lambda pair: ORDER.index(pair[0])):
        share = draw.random()
        print(f"GEARTRAIN_KILL_SEED={seed}: kill {victim} at {share:.2f} of {stage}")
        _kill(checkout, stage, victim, share * seconds[stage])
    done = checkout.run(*REPRO)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


def test_a_killed_run_ends_with_the_same_artifacts(finished: Checkout, killed: Checkout) -> None:
    assert digests(killed.root) == digests(finished.root)


def test_nothing_is_left_over(killed: Checkout) -> None:
    hidden = [path.name for path in killed.root.rglob("*.incoming")] + [p.name for p in killed.root.rglob("*.outgoing")]
    work = [path.name for path in (killed.root / ".geartrain/work").iterdir() if path.suffix != ".lock"]
    assert (hidden, work) == ([], [])


def test_a_second_repro_runs_nothing(killed: Checkout) -> None:
    again = killed.run(*REPRO)
    assert again.returncode == 0
    assert again.stdout.count("didn't change, skipping") == len(ORDER)
    assert "Running stage" not in again.stdout


def test_a_changed_section_reruns_what_depends_on_it(killed: Checkout) -> None:
    params = killed.root / "params.yaml"
    unchanged = params.read_text()
    params.write_text(unchanged.replace("max_invalid_calls: 0.2", "max_invalid_calls: 0.3"))
    rerun = killed.run(*REPRO).stdout
    assert [line for line in rerun.splitlines() if line.startswith("Running stage")] == ["Running stage 'promotion':"]
    params.write_text(unchanged)
    back = killed.run(*REPRO).stdout  # DVC has that run in its cache
    assert "Stage 'promotion' is cached - skipping run, checking out outputs" in back


def _kill(checkout: Checkout, stage: str, victim: str, delay: float) -> None:
    """Start `dvc repro`, wait until `stage` starts and `delay` seconds more, and kill."""
    log = checkout.root / ".geartrain/lineage"
    seen = len(read_events(log))
    # output goes to a file: a pipe's reader would wait for whoever outlives dvc
    with (
        (checkout.root / "repro.log").open("a") as output,
        subprocess.Popen(
            REPRO, cwd=checkout.root, env=checkout.variables, stdout=output, stderr=output, start_new_session=True
        ) as dvc,
    ):
        while not _seen(log, "START", stage, seen):
            assert dvc.poll() is None, (checkout.root / "repro.log").read_text()
            _let(dvc, POLL_SECONDS)
        end = time.monotonic() + delay
        # a stage that is quicker this time is killed at its end, when DVC takes its output in
        while time.monotonic() < end and not _seen(log, "COMPLETE", stage, seen):
            _let(dvc, POLL_SECONDS)
        assert dvc.poll() is None, f"dvc ended before the kill:\n{(checkout.root / 'repro.log').read_text()}"
        children = psutil.Process(dvc.pid).children(recursive=True)
        if victim == "group":
            os.killpg(dvc.pid, signal.SIGKILL)
        elif victim == "dvc" or not children:  # between two stages there is only dvc
            dvc.kill()
        else:
            children[-1].kill()
        dvc.wait()
        psutil.wait_procs(children, timeout=60)
        assert not [child for child in children if child.is_running()], "a stage outlived its dvc"


def _seen(log: Path, kind: str, stage: str, skip: int) -> bool:
    return any((event["eventType"], stage_of(event)) == (kind, stage) for event in read_events(log)[skip:])


def _let(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Let a process go on for so long, or until it ends."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _durations(root: Path) -> dict[str, float]:
    """Stage -> seconds it took in a finished run, from the lineage events."""
    events = read_events(root / ".geartrain/lineage")
    done = [event for event in events if event["eventType"] == "COMPLETE"]
    return {stage_of(event): event["run"]["facets"]["geartrain_resources"]["seconds"] for event in done}
