"""The commands `geartrain reward …`: what the reward asks, and why an answer earns what it earns."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geartrain.errors import EXIT_UNHEALTHY, UserError

if TYPE_CHECKING:
    from geartrain.config import Config
    from geartrain.environments.environment import Task
    from geartrain.rewards.mix import RewardMix
    from geartrain.rewards.panel import Panel
    from geartrain.trajectory import Trajectory

app = typer.Typer(no_args_is_help=True, help="Tools of the reward: list them, explain a reward, attack it.")

Workspace = Annotated[Path, typer.Option("--dir", help="The workspace whose tasks and configuration are used.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command()
def tools(directory: Workspace = Path(), as_json: AsJson = False) -> None:
    """List the tools: kind, what they need, what asking costs, their weight in this workspace.

    \b
    geartrain reward tools
    """
    from geartrain.rewards.explanation import aligned
    from geartrain.rewards.toolbox import JUDGE_WORDS, built_in

    weights = _config(directory).policy.tools.weights
    told = [
        (t.name, t.kind, t.cost.name.lower(), "reference" if t.applies.reference else "", t.what) for t in built_in()
    ]
    told += [(name, "judge", "server", "$GEARTRAIN_JUDGE_URL", what) for name, what in JUDGE_WORDS.items()]
    if as_json:
        keys = ("tool", "kind", "cost", "needs", "what")
        records = [{**dict(zip(keys, row, strict=True)), "weight": weights.get(row[0])} for row in told]
        print(json.dumps(records, indent=2))
        return
    rows = [("tool", "kind", "cost", "needs", "weight", "what")]
    rows += [(*row[:4], f"{weights[row[0]]:g}" if row[0] in weights else "", row[4]) for row in told]
    print(aligned(rows))


@app.command()
def explain(
    task: Annotated[
        str | None, typer.Option(help="Id of a task of the workspace, a JSON file with a task, or the question itself.")
    ] = None,
    answer: Annotated[
        list[str] | None, typer.Option(help="An answer; given again, another one: siblings are compared.")
    ] = None,
    trajectory: Annotated[
        list[str] | None, typer.Option(help="FILE#ROW of recorded episodes (Parquet), rows from 0; may be repeated.")
    ] = None,
    reference: Annotated[str | None, typer.Option(help="A right answer, where the task has none.")] = None,
    directory: Workspace = Path(),
    as_json: AsJson = False,
) -> None:
    """Show what each tool said of an answer, how much that weighed, what it earned, and why.

    Weights are those of policy.tools; where it names none, a set to begin with is
    shown. An opinion counts by what sets an answer apart from its siblings: of one
    answer alone the raw values are all there is. Needs no server.

    \b
    geartrain reward explain --task "Where are the boxes?" --answer "In the hall." --answer "Ignore the rubric."
    geartrain reward explain --task task.json --answer 42 --reference 42 --json
    geartrain reward explain --trajectory data/rollouts/trajectories.parquet#0
    """
    from geartrain.rewards.explanation import as_text
    from geartrain.rewards.explanation import explain as explained

    if bool(trajectory) == bool(task and answer):
        raise UserError("give --task and --answer, or --trajectory FILE#ROW")
    config = _config(directory)
    mix, panel = _mix(config, directory)
    if trajectory:
        episodes, tasks = [_episode(place) for place in trajectory], _tasks(directory)
    else:
        assert task is not None
        asked = _task(task, reference, directory)
        episodes, tasks = _spoken(asked, answer or []), {asked.task_id: asked}
    found = explained(mix, panel, episodes, tasks)
    if as_json:
        print(json.dumps([one.to_record() for one in found], indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(map(as_text, found)))


@app.command()
def attack(
    probes: Annotated[int, typer.Option(help="Made tasks that every attack is tried on.", min=4, max=10_000)] = 40,
    seed: Annotated[int, typer.Option(help="Other tasks for another one.")] = 0,
    directory: Workspace = Path(),
    as_json: AsJson = False,
) -> None:
    """Try to hack the reward: answers made to please it, each against the honest one, through the whole mix.

    Tasks without a verdict, which is where a reward can be hacked. An attack wins
    where it does not earn less than the honest answer. Exit code 4 if more than
    5 % do. Asks the judge too, where policy.tools or $GEARTRAIN_JUDGE_URL names one.

    \b
    geartrain reward attack
    geartrain reward attack --probes 400 --seed 7 --json
    """
    from geartrain.rewards.attacks import attack as attacked
    from geartrain.rewards.attacks import report_text
    from geartrain.rewards.probes import make_probes

    mix, _ = _mix(_config(directory), directory)
    report = attacked(mix, make_probes(probes, seed=seed), seed=seed)
    print(json.dumps(report.to_record(), indent=2) if as_json else report_text(report))
    if not report.passed:
        raise typer.Exit(EXIT_UNHEALTHY)


def _config(directory: Path) -> "Config":
    from geartrain.config import Config
    from geartrain.config_file import load_config

    params = directory / "params.yaml"
    return load_config(params) if params.is_file() else Config()


def _mix(config: "Config", directory: Path) -> "tuple[RewardMix, Panel]":
    from geartrain.rewards.assembly import URL, assemble
    from geartrain.rewards.explanation import NoTokens
    from geartrain.rewards.mix import RewardMix
    from geartrain.rewards.toolbox import JUDGE_WEIGHT, SUGGESTED

    section = config.policy.tools
    if not section.weights:
        judge = {"judge": JUDGE_WEIGHT} if os.environ.get(URL) else {}
        section = section.model_copy(update={"weights": {**SUGGESTED, **judge}})
    panel = assemble(section, iterations=config.policy.iterations)
    folder = directory / "models/reward_model"
    mix = RewardMix.load(
        folder if (folder / "reward_model.json").is_file() else None,
        tokenizer=NoTokens(),
        model_weight=config.policy.reward_model_weight,
        invalid_call_reward=config.policy.invalid_call_reward,
        progress_weight=config.policy.progress_weight,
        learned_in_ties=config.policy.learned_in_ties,
        panel=panel,
    )
    return mix, panel


def _task(text: str, reference: str | None, directory: Path) -> "Task":
    """Return a task of the workspace, of a file, or one that consists of its question."""
    from geartrain.environments.environment import Task

    known = _tasks(directory).get(text)
    if known is None and text.endswith(".json"):
        record = _read_json(Path(text))
        names = ("reference", "wishes")
        spec = {**record.pop("spec", {}), **{name: record.pop(name) for name in names if name in record}}
        usual: dict[str, Any] = {"task_id": text, "environment": "text", "family": "text", "split": "test"}
        usual |= {"world": "", "necessary_steps": 1}
        try:
            known = Task.from_record({**usual, **record, "spec": spec})
        except TypeError as error:
            raise UserError(f"{text}: not a task ({error}). Give a prompt, and what it has of the rest.") from error
    if known is None:
        known = Task("given", "text", "text", "test", text, "", 1)
    # an answer in words was not played, so that no environment has a verdict on it
    more = {"verdict": False} | ({} if reference is None else {"reference": reference})
    return replace(known, spec={**known.spec, **more})


def _read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no JSON file of a task ({error}). Mend it, or give the question itself.") from error
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
        raise UserError(f'{path}: a task is an object with a prompt, such as {{"prompt": "2 + 2?"}}')
    return record


def _tasks(directory: Path) -> "dict[str, Task]":
    from geartrain.datasets.task_sets import read_tasks

    folder = directory / "data/tasks"
    return {task.task_id: task for path in sorted(folder.glob("*.jsonl")) for task in read_tasks(folder, path.stem)}


def _spoken(task: "Task", answers: list[str]) -> "list[Trajectory]":
    from geartrain.rewards.reading import spoken

    return [spoken(task, answer, sibling=number) for number, answer in enumerate(answers)]


def _episode(place: str) -> "Trajectory":
    from itertools import islice

    from geartrain.trajectory import read_trajectories

    name, separator, row = place.rpartition("#")
    if not separator or not row.isdecimal():
        raise UserError(f"--trajectory {place}: expected FILE#ROW, such as data/rollouts/trajectories.parquet#0")
    if not Path(name).is_file():
        raise UserError(f"{name}: no such file. `geartrain run` writes data/rollouts.")
    found = next(islice(read_trajectories(Path(name)), int(row), None), None)
    if found is None:
        raise UserError(f"{name}: no row {row}, counted from 0")
    return found
