"""The command line. Imports nothing heavy at the top: `geartrain --help` answers in well under a second."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from geartrain import command_groups, logs
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, GeartrainError, UserError
from geartrain.wording import printable

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train tool-using language-model agents by reinforcement learning, stage by stage.",
    epilog="Start with: geartrain run --profile smoke",
)
config_app = typer.Typer(no_args_is_help=True, help="Show or check a configuration; starts nothing.")
app.add_typer(config_app, name="config")
command_groups.add_to(app)

Workspace = Annotated[Path, typer.Option("--dir", help="The workspace: where params.yaml and the stages' folders lie.")]
PAUSES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
"""Errors of the disk or the mount: the same call may succeed later."""
MISTAKES = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
)
"""A path that is something else than was meant, or not ours to write."""
NAME_LIMIT = 120
"""Characters of a run folder's name that are written out."""


def main(command: Callable[[], object] = app) -> None:
    """Run the command line; a deliberate error becomes its message and exit code, any other keeps its traceback."""
    try:
        command()
    except GeartrainError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        if error.errno in MISTAKES:
            _fail(f"{error}. Give another path, or change who may write there.", EXIT_USER)
        if error.errno not in PAUSES:
            raise
        _fail(f"{error}. Free space or mend the mount, then run the same command again.", EXIT_INFRASTRUCTURE)


def _fail(message: str, code: int) -> None:
    text = "\n".join(map(printable, message.split("\n")))
    logs.say(text, level=logs.ERROR, exit_code=code)
    raise SystemExit(code)


def _say(message: str) -> None:
    logs.say(message)


@app.command()
def run(
    profile: Annotated[
        str | None, typer.Option(help="demo, smoke, smollm2 or a YAML file; default: the workspace's params.yaml.")
    ] = None,
    engine: Annotated[str, typer.Option(help="direct, dvc or kfp.")] = "direct",
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="section.key=value; may be repeated.")] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="The workspace; default: here; runs/… when a profile or a setting is given."),
    ] = None,
    until: Annotated[str, typer.Option(help="The last stage to run.")] = "promotion",
) -> None:
    """Run the pipeline, from the tasks to the promoted model.

    A stage whose output is there already, of the same configuration, inputs and
    code, is skipped (by kfp's engine none is). After a kill or a failure the same
    command goes on from the last checkpoint. A new folder starts from the tasks:
    to repeat only what a change reaches, edit params.yaml and run `dvc repro`; to
    compare methods on one warm start, see `geartrain study`. The dvc engine works
    in the project's root alone.

    \b
    geartrain run --profile smoke                 all of it in a minute, in runs/smoke
    geartrain run                                 this folder's params.yaml (minutes)
    geartrain run --set policy.recipe=grpo        the same with plain GRPO, in runs/…
    geartrain run --profile smoke --until collect
    geartrain run --profile smoke --engine kfp    Kubeflow's pipeline, on this machine
    """
    from geartrain import engines, workspace
    from geartrain.stages.stage import ORDER

    _known(engine, tuple(engines.ENGINES), "engine")
    _known(until, ORDER, "stage")
    changes = [*(settings or []), *([] if seed is None else [f"seed={seed}"])]
    folder = directory or _default_folder(profile, changes)
    if profile or changes or not (folder / workspace.PARAMS).is_file():
        base = workspace.find_profile(profile) if profile else _base(folder)
        made_from = " ".join([str(profile or base), *(f"--set {change}" for change in changes)])
        workspace.prepare(folder, workspace.compose(base, changes), made_from=made_from)
    os.chdir(folder)
    config = workspace.check(Path(workspace.PARAMS))
    _say(f"workspace: {folder}")
    code = engines.ENGINES[engine](Path(), config, until, _say)
    if code:
        raise typer.Exit(code)
    if until == ORDER[-1]:
        _say(f"next: geartrain report --dir {folder}")


def _default_folder(profile: str | None, changes: list[str]) -> Path:
    """A run with its own configuration gets its own folder, named after it, so that none overwrites another."""
    if profile is None and not changes:
        return Path()
    name = "+".join([Path(profile or "params").stem, *(change.replace("/", "_") for change in changes)])
    if len(name) > NAME_LIMIT:
        name = f"{name[:NAME_LIMIT]}…{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("runs") / name


def _base(folder: Path) -> Path:
    from geartrain.workspace import PARAMS, find_profile

    here = [path / PARAMS for path in (folder, Path()) if (path / PARAMS).is_file()]
    return here[0] if here else find_profile("demo")


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help="tasks, warm_start, collect, … as `geartrain run` lists them.")],
    params: Annotated[Path, typer.Option(help="The configuration, as seen from the workspace.")] = Path("params.yaml"),
    directory: Workspace = Path(),
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="name=FOLDER instead of the workspace's own; may be repeated.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder to write instead of the workspace's own.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the metrics.")] = False,
) -> None:
    """Run one stage in place and print its metrics as JSON; what dvc.yaml calls.

    Exit codes: 0 done; 2 something for you to mend (a retry changes nothing);
    75 disk or network (retry); 1 a fault of the program.

    \b
    geartrain stage tasks
    geartrain stage policy --dir runs/smoke
    geartrain stage evaluation --input policy=models/warm_start --output other
    """
    from geartrain import engines, preemption, workspace
    from geartrain.ranks import join_ranks
    from geartrain.stages import stage as stages
    from geartrain.telemetry.serving import exporting

    engines.die_with_parent()
    preemption.listen()
    logs.bind(stage=name)
    _known(name, stages.ORDER, "stage")
    given = dict(_pair(text) for text in inputs or [])
    given = {key: path.resolve() for key, path in given.items()}
    target = None if output is None else output.resolve()
    os.chdir(_existing(directory))
    config = workspace.check(params)
    os.environ.update(engines.process_environment(config.threads))  # before torch is loaded
    spec = stages.load_stage(name)
    unknown = sorted(set(given) - set(spec.inputs))
    if unknown:
        raise UserError(f"--input {unknown[0]}=…: stage {name} reads {', '.join(spec.inputs) or 'no artifacts'}")
    sources = {key: given.get(key, stages.FOLDERS[key]) for key in spec.inputs}
    ranks = join_ranks()
    with workspace.exclusive(name) if ranks.leads else nullcontext(), exporting(name, ranks):
        metrics = spec.run(config, sources, {name: target or stages.FOLDERS[name]}, ranks)
    ranks.close()
    if not quiet and ranks.leads:
        print(json.dumps(metrics, indent=2, sort_keys=True))


@app.command("eval")
def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of any Hugging Face causal LM, or a .gguf file.")],
    splits: Annotated[
        list[str] | None, typer.Option("--split", help="train, val, test, ood or paraphrase; may be repeated.")
    ] = None,
    directory: Workspace = Path(),
) -> None:
    """Measure a model on the workspace's tasks, greedy and sampled; print the tables as JSON.

    \b
    geartrain eval models/policy
    geartrain eval models/warm_start --split test --split ood
    """
    from geartrain import engines, workspace
    from geartrain.artifacts import file_sha256, fingerprint, list_files
    from geartrain.config import SPLITS
    from geartrain.home import WORK, home
    from geartrain.stages.stage import FOLDERS

    chosen = tuple(dict.fromkeys(splits or ["test"]))
    for split in chosen:
        _known(split, SPLITS, "split")
    if not model.exists() and (directory / model).exists():
        model = directory / model
    if not model.exists():
        raise UserError(f"{model}: no such model. A finished run has models/warm_start and models/policy.")
    model = model.resolve()
    os.chdir(_existing(directory))
    config = workspace.check(Path(workspace.PARAMS))
    os.environ.update(engines.process_environment(config.threads))  # before torch is loaded
    from geartrain.stages.evaluation import evaluate_model

    weights = list_files(model) if model.is_dir() else {model.name: file_sha256(model)}
    key = fingerprint([weights, chosen, config.model_dump(mode="json")])
    table = evaluate_model(model, FOLDERS["tasks"], config, splits=chosen, work=home() / WORK / f"eval-{key[:16]}")
    print(json.dumps(table, indent=2, sort_keys=True))


@app.command()
def envs(
    name: Annotated[str | None, typer.Argument(help="Show this environment; default: list them.")] = None,
    split: Annotated[str, typer.Option(help="Where the shown task is from.")] = "val",
    index: Annotated[int, typer.Option(help="Which task of the split.", min=0)] = 0,
    directory: Workspace = Path(),
) -> None:
    """List the environments; or show one: its tools, a task, and how the expert solves it.

    \b
    geartrain envs
    geartrain envs analyst --split test --index 3
    """
    from geartrain import walkthrough, workspace
    from geartrain.config_file import load_config
    from geartrain.environments import ENVIRONMENTS
    from geartrain.stages.stage import FOLDERS

    if name is None:
        print("\n".join(ENVIRONMENTS))
        return
    _known(name, tuple(ENVIRONMENTS), "environment")
    os.chdir(_existing(directory))
    config = load_config(Path(workspace.PARAMS))
    made = FOLDERS["tasks"] if name == config.environment.name else None  # a workspace's tasks are of its environment
    section = config.environment.model_copy(update={"name": name})
    config = config.model_copy(update={"environment": section})
    workspace.require_files(config, workspace.PARAMS)
    with walkthrough.open_environment(config, made, split) as (environment, tasks):
        if index >= len(tasks):
            raise UserError(f"--index {index}: split {split} has {len(tasks)} tasks, counted from 0")
        print("tools:", *walkthrough.describe_tools(environment), sep="\n  ")
        print(f"\ntask {tasks[index].task_id} ({tasks[index].family}, {tasks[index].necessary_steps} steps)")
        episode = walkthrough.play_expert(environment, tasks[index], seed=config.seed, max_turns=10**6)
        for speaker, text in episode:
            print(f"\n{speaker}:\n{text}")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Explain this one and its settings; default: list them.")] = None,
) -> None:
    """List the algorithms that policy.recipe may name; or explain one, with its settings.

    \b
    geartrain methods
    geartrain methods gear_b
    geartrain run --set policy.recipe=gear_b --set policy.settings.gear_b.kappa=0.5
    """
    from geartrain import handbook
    from geartrain.methods import METHODS

    if name is not None:
        _known(name, tuple(METHODS), "method")
    print(handbook.list_methods() if name is None else handbook.describe_method(name))


@app.command()
def study(
    file: Annotated[Path, typer.Argument(help="The study: a YAML file, such as studies/first.yaml.")],
    table: Annotated[
        bool, typer.Option("--table", help="Run nothing; rebuild table and picture from what is finished.")
    ] = False,
    known: Annotated[
        list[Path] | None,
        typer.Option("--with", help="Take finished cells from this folder too, such as studies/results/first."),
    ] = None,
) -> None:
    """Compare methods: variants x seeds x environments, on equal ground.

    For one environment and seed all variants share tasks, warm start, rollouts,
    preferences, reward model and critic; only `policy` differs. What is finished
    is not run again: after a kill or a failure the same command goes on. Writes
    results.json, results.md, results.csv and curves.svg to the output folder,
    and each cell's record to cells/: with them a study goes on elsewhere.

    Exit codes: 0 every cell is done; 2, 75 or 1 some failed, as `geartrain stage`
    does: the others are done, and results.md has the reasons.

    \b
    geartrain study studies/smoke.yaml          two methods, in two minutes
    geartrain study studies/first.yaml          nine methods, in two hours
    geartrain study studies/first.yaml --table  what is known so far
    geartrain study studies/first.yaml --with studies/results/first
    """
    from geartrain.study.records import read_records
    from geartrain.study.report import write_results
    from geartrain.study.run import run_study
    from geartrain.study.schema import load_study

    plan = load_study(file)
    cells = read_records(known or [], plan)
    code = 0 if table else run_study(plan, _say, cells)
    for path in write_results(plan, cells):
        print(path)
    if code:
        raise typer.Exit(code)


@app.command()
def report(directory: Workspace = Path()) -> None:
    """Write the HTML report of a run, print its main numbers and where it is.

    A run that is not finished has a report too: it says what is missing.

    \b
    geartrain report
    geartrain report --dir runs/smoke
    """
    from rich.console import Console

    from geartrain.reporting.build import build_report, summary

    path = build_report(_existing(directory))
    Console().print(summary(directory))
    print(f"report: {path}")


@config_app.command()
def check(params: Annotated[Path, typer.Argument(help="The file to check.")] = Path("params.yaml")) -> None:
    """Check a configuration: unknown keys, wrong types, impossible values, missing files. Exit code 2 names each.

    \b
    geartrain config check
    geartrain config check profiles/smoke.yaml
    """
    from geartrain import workspace

    workspace.check(params)
    print(f"{params}: valid")


@config_app.command()
def show(
    section: Annotated[str | None, typer.Argument(help="One section; default: all.")] = None,
    profile: Annotated[str | None, typer.Option(help="demo, smoke, smollm2 or a file; default: params.yaml.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="section.key=value; may be repeated.")] = None,
) -> None:
    """Print every value of a configuration, and what it does.

    \b
    geartrain config show policy
    geartrain config show --profile smoke --set policy.iterations=3
    """
    from geartrain import workspace
    from geartrain.config import parse_config
    from geartrain.params import render

    base = workspace.find_profile(profile) if profile else _base(Path())
    config = parse_config(workspace.compose(base, settings or []), source=str(base))
    if section is not None:
        _known(section, tuple(type(config).model_fields), "section")
    print(render(config, only=section), end="")


def _known(name: str, names: tuple[str, ...], kind: str) -> None:
    """Raise UserError, with the nearest valid name, unless `name` is one of `names`."""
    from difflib import get_close_matches

    if name not in names:
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise UserError(f"no {kind} {name!r}; {hint}")


def _pair(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (separator and name and path):
        raise UserError(f"--input {text}: expected name=FOLDER, such as --input policy=models/policy")
    return name, Path(path)


def _existing(directory: Path) -> Path:
    if not directory.is_dir():
        raise UserError(f"{directory}: no such folder. `geartrain run --dir {directory}` makes a workspace.")
    return directory
