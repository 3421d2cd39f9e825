"""The report in a terminal: what a person wants to know when `make demo` ends."""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geartrain.reporting.facts import Facts, gather
from geartrain.reporting.sections import DECODINGS, SPLITS, headline, missing
from geartrain.wording import duration, points, rate


def summary(workspace: Path) -> RenderableType:
    """Return the main numbers of a workspace for a rich console. Raises UserError as `build_report`."""
    facts = gather(workspace)
    title = headline(facts)
    parts: list[RenderableType] = [Text(title["title"], style="bold")]
    if title["withdrawn"]:
        parts.append(Text(title["withdrawn"]["text"], style="red"))
    parts.append(_results(facts) if facts.tables else _note(facts, "evaluation"))
    verdict = title["verdict"]
    if verdict is None:
        parts.append(_note(facts, "promotion"))
    elif verdict["promoted"]:
        parts.append(Text("Gate: promoted, all checks passed", style="green"))
    else:
        parts.append(Text("Gate: not promoted; " + "; ".join(verdict["failed"]), style="yellow"))
    if facts.resources:
        parts.append(_times(facts))
    return Group(*parts)


def _results(facts: Facts) -> Table:
    """Return the table of all splits; it fits 80 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("split", "", "before, %", "after, %", "gain, points"):
        table.add_column(name, no_wrap=True, justify="right" if name and name != "split" else "left")
    splits = (facts.tables or {})["splits"]
    for split in SPLITS:
        for decoding in DECODINGS if split in splits else ():
            row = splits[split][decoding]
            cells = rate(row["before"]["success"]), rate(row["after"]["success"]), points(row["gain"])
            plain = (cell.replace(" %", "").replace(" points", "") for cell in cells)
            table.add_row(split if decoding == DECODINGS[0] else "", decoding, *plain)
    return table


def _note(facts: Facts, stage: str) -> Text:
    note = missing(facts, stage)
    text = note["text"] if note["failed"] else f"Not there yet: run `geartrain stage {stage}`."
    return Text(text, style="red" if note["failed"] else "dim")


def _times(facts: Facts) -> Text:
    times = {stage: used["seconds"] for stage, used in facts.resources.items() if "seconds" in used}
    longest = sorted(times, key=lambda stage: -times[stage])[:3]
    listed = ", ".join(f"{stage} {duration(times[stage])}" for stage in longest)
    return Text(f"Stages took {duration(sum(times.values()))} in all; longest: {listed}", style="dim")
