"""The commands `geartrain preferences …`: preference data that people have, made into one checked data set."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from geartrain.errors import UserError

if TYPE_CHECKING:
    from geartrain.preferences.sources import SourceFile

app = typer.Typer(no_args_is_help=True, help="Preference data: read any form, check it, split it, say what it is like.")
STAGE = "preference_data"
"""What the manifest of a built data set calls itself."""
PAGE = "report.html"
Value = TypeVar("Value")


@app.command()
def build(
    files: Annotated[list[Path], typer.Option("--from", help="A file; may be repeated. Later ones move no split.")],
    out: Annotated[Path, typer.Option(help="Folder to write, all of it or nothing.")],
    form: Annotated[
        list[str] | None, typer.Option(help="Form of the files, or of each in turn; default: told by their records.")
    ] = None,
    licence: Annotated[
        list[str] | None, typer.Option(help="Licence of the data, or of each file in turn, such as cc-by-4.0.")
    ] = None,
    held_out: Annotated[
        list[Path] | None, typer.Option(help="Prompts that must not leak: records, or a .txt with one a line.")
    ] = None,
    tasks: Annotated[Path | None, typer.Option(help="Task sets that our own trajectories belong to.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Of text files that are not UTF-8 and have no mark.")] = None,
    validation_share: Annotated[float, typer.Option(min=0.0, max=0.9, help="Share of prompts to hold out.")] = 0.2,
    max_rejected_share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Stop when more is left out.")] = 0.5,
    max_tokens: Annotated[int, typer.Option(min=16, help="Length of the reward model, in tokens.")] = 160,
    near: Annotated[bool, typer.Option("--near/--no-near", help="Look for near duplicates (MinHash).")] = True,
    anew: Annotated[bool, typer.Option("--anew", help="Forget the splits of what lies in --out.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Print all tables, and write report.html.")] = False,
) -> None:
    """Build one checked data set from files of preferences, and say what it is like.

    Files are JSON lines (.jsonl), one JSON array (.json), CSV, TSV or Parquet,
    each also as .gz or .zst, of any size. Forms, told by the first records:

    \b
    hh             HH-RLHF: chosen and rejected, "\\n\\nHuman: … \\n\\nAssistant: …"
    ultrafeedback  instruction, completions with a Rating per aspect
    helpsteer2     prompt, response, helpfulness … 0 to 4; one answer a row
    nectar         prompt, answers with rank (1 is the best)
    ab             prompt, response_a, response_b, winner (or conversation_a …)
    pairs          chosen and rejected, texts or messages; prompt
    steps          PRM800K; or prompt, completions, labels
    trajectories   our own rollouts, with --tasks data/tasks
    records        what this command wrote

    What cannot be used is left out, with file, line and reason, in
    quarantine.jsonl. records.parquet holds the rest, in splits: near prompts lie
    in one, and what lies in --out already keeps its own. params.yaml takes files
    too (preferences.files), for the reward model.

    \b
    geartrain preferences build --from hh.jsonl.gz --out data/hh --report
    geartrain preferences build --from a.parquet --from b.csv --out data/ab
    geartrain preferences build --from a.jsonl --form pairs --licence mit --out data/a
    geartrain preferences build --from uf.jsonl --held-out test.txt --out data/uf
    """
    from rich.console import Console

    from geartrain.preferences.building import MARKDOWN
    from geartrain.reporting import preference_page

    sources = _sources(files, form, licence, encoding=encoding, tasks=tasks)
    asked = {
        "validation_share": validation_share,
        "max_rejected_share": max_rejected_share,
        "max_tokens": max_tokens,
        "near": near,
    }
    told = _build(sources, asked, held_out or [], out, anew=anew, page=report)
    console = Console()
    if report:
        console.print(preference_page.to_terminal(told))
        print(f"{out / PAGE}: the same, with pictures")
    else:
        console.print(preference_page.headline(told))
        for line in told["warnings"]:
            console.print(f"! {line}", style="yellow", highlight=False)
        print(f"{out / MARKDOWN}: what it is like; --report says it here and as a page")


def _sources(
    files: Sequence[Path],
    forms: Sequence[str] | None,
    licences: Sequence[str] | None,
    *,
    encoding: str | None,
    tasks: Path | None,
) -> list["SourceFile"]:
    from geartrain.preferences.forms import form_named
    from geartrain.preferences.opening import kind_of
    from geartrain.preferences.sources import SourceFile

    for path in files:
        kind_of(path)
    each = zip(files, _each(forms, files, "--form"), _each(licences, files, "--licence"), strict=True)
    named = [SourceFile(path, form, licence, encoding, _prompts(tasks)) for path, form, licence in each]
    for source in named:
        if source.form is not None:
            form_named(source.form)
    return named


def _each(values: Sequence[Value] | None, files: Sequence[Path], option: str) -> list[Value | None]:
    """Return a value per file: none, one for all, or one each."""
    if not values:
        return [None] * len(files)
    if len(values) not in {1, len(files)}:
        raise UserError(f"{option} is given {len(values)} times for {len(files)} files; give it once, or once a file")
    found: list[Value | None] = [*values]
    return found * (len(files) // len(values))


def _prompts(tasks: Path | None) -> dict[str, str] | None:
    if tasks is None:
        return None
    from geartrain.datasets.task_sets import read_tasks

    splits = sorted(path.stem for path in tasks.glob("*.jsonl")) if tasks.is_dir() else []
    if not splits:
        raise UserError(f"--tasks {tasks}: no task sets there. `geartrain stage tasks` writes data/tasks.")
    return {task.task_id: task.prompt for split in splits for task in read_tasks(tasks, split)}


def _build(
    sources: list["SourceFile"], asked: dict[str, Any], held_out: Sequence[Path], out: Path, *, anew: bool, page: bool
) -> dict[str, Any]:
    """Build beside `out`, seal, publish."""
    from geartrain import artifacts, withdrawals
    from geartrain.preferences.building import RECORDS, Options, build
    from geartrain.preferences.held_out import read_prompts
    from geartrain.preferences.sources import name_sources
    from geartrain.reporting.preference_page import to_page

    inputs = {name: artifacts.file_sha256(one.path) for name, one in zip(name_sources(sources), sources, strict=True)}
    inputs |= {f"held out: {path.name}": artifacts.file_sha256(path) for path in held_out if path.is_file()}
    earlier, ancestors = _earlier(out, inputs, anew=anew)
    withdrawals.require_allowed(inputs, {"the data set": ancestors})
    prompts = read_prompts(held_out)
    staged = out.with_name(f".{out.name}.building")
    shutil.rmtree(staged, ignore_errors=True)  # a killed build may have left it
    try:
        (staged / "output").mkdir(parents=True)
        options = Options(**asked, held_out=prompts, earlier=earlier)
        told = build(sources, options, output=staged / "output", work=staged / "work")
        if page:
            artifacts.write_atomically(staged / "output" / PAGE, to_page(told))
        artifacts.write_manifest(
            staged / "output",
            stage=STAGE,
            parameters=asked,
            inputs=inputs,
            metrics={key: told[key] for key in ("records", "kept", "left_out", "splits")},
            ancestors=ancestors,
        )
        artifacts.publish(staged / "output", out)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    assert (out / RECORDS).is_file()
    return told


def _earlier(out: Path, inputs: dict[str, str], *, anew: bool) -> tuple[Path | None, dict[str, str]]:
    """Return the records whose splits are to be kept, and what they were made from; their digest joins `inputs`."""
    from geartrain import artifacts
    from geartrain.preferences.building import RECORDS

    if not out.exists():
        return None, {}
    before = artifacts.verify(out)
    if before.stage != STAGE:
        raise UserError(f"{out}: holds {before.stage}, no preference data that was built. Give another --out.")
    if anew:
        return None, {}
    inputs["earlier build"] = before.digest
    return out / RECORDS, dict(artifacts.origins(before))
