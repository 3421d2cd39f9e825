"""What the run page asks for: one method per question, plain JSON-ready values out. Nothing here writes to a workspace.

A workspace is named by its path from the folder that is shown, and only those
found below it have a name: nothing that a request says becomes a path.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from geartrain.artifacts import MANIFEST
from geartrain.errors import UserError
from geartrain.reporting import sections
from geartrain.reporting.facts import Facts, gather
from geartrain.reporting.transcript import printable
from geartrain.stages.stage import FOLDERS, ORDER
from geartrain.viewer import comparison, curves
from geartrain.viewer.episodes import SORTS, Asked, Episodes, task_prompt
from geartrain.viewer.state import Watched, alarms_of, current
from geartrain.viewer.workspaces import require_workspaces

Record = dict[str, Any]
Query = Mapping[str, str]
Question = Callable[[Query], Record]
MOST_ROWS = 200
LOOK_AGAIN_SECONDS = 5.0
"""How old the list of workspaces may be."""
LONGEST_REASON = 2000


class QuestionError(Exception):
    """A question that has no answer: its text is for whoever asked."""

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


class Run:
    """A workspace, as the page asks for it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.title = name, folder, comparison.folder_name(name, folder)
        self.watched = Watched(folder)
        self._episodes: Episodes | None = None
        self._facts: tuple[Any, Facts | None] | None = None
        self._curves: tuple[tuple[str, int], dict[str, curves.Points]] | None = None

    def look(self) -> Watched:
        """Return the workspace as it is now."""
        self.watched.refresh()
        return self.watched

    def facts(self) -> Facts | None:
        """Return what the finished stages have left; None: nothing yet. Read anew where a stage has begun or ended."""
        state = self.watched.changed()
        if self._facts is None or self._facts[0] != state:
            try:
                self._facts = state, gather(self.folder)
            except UserError:
                self._facts = state, None
        return self._facts[1]

    def episodes(self) -> Episodes:
        """Return the recorded episodes of the latest training."""
        folder = self.look().episodes()
        if self._episodes is None or self._episodes.folder != folder:
            self._episodes = Episodes(folder)
        return self._episodes

    def lines(self) -> tuple[str, Sequence[Record]]:
        """Return the iterations of the latest training in the order in which they came, and a name for that record."""
        tail = self.watched.latest.get("policy")
        if tail is not None and tail.iterations and tail.began is not None:
            return tail.path.stem, [tail.iterations[index] for index in tail.arrived]
        facts = self.facts()
        manifest = facts.manifests.get("policy") if facts else None
        lines = curves.lines_of(facts.histories.get("policy", ())) if facts else []
        return (manifest.digest[:16] if manifest else ""), lines

    def curves(self) -> dict[str, curves.Points]:
        """Return all curves of the latest training."""
        of, lines = self.lines()
        if self._curves is None or self._curves[0] != (of, len(lines)):
            self._curves = (of, len(lines)), curves.points(_in_order(lines))
        return self._curves[1]


class Answers:
    """All questions about the workspaces below a folder. Many threads may ask.

    Args:
        root: where they lie.
        others: workspaces elsewhere, by name, to compare with.

    Raises:
        UserError: there is none.
    """

    def __init__(self, root: Path, others: Mapping[str, Path] | None = None) -> None:
        self._root, self._others = root, dict(others or {})
        self._lock = Lock()
        """Of everything that is read on: workspaces, live records, facts. Episodes have one of their own."""
        self._runs: dict[str, Run] = {}
        self._looked = 0.0
        self._together: Mapping[str, Question] = {
            "runs": self._all, "run": self._run, "results": self._results, "compare": self._compare,
        }  # fmt: skip
        self._apart: Mapping[str, Question] = {
            "episodes": self._list_episodes, "episode": self._open_episode, "lineage": self._lineage,
        }  # fmt: skip
        self._look()

    def ask(self, question: str, query: Query) -> Record:
        """Answer a question.

        Raises:
            QuestionError: there is no such question, or no answer.
            UserError: there is no workspace any more.
        """
        if question in self._apart:
            return self._apart[question](query)
        if question not in self._together:
            known = ", ".join([*self._together, *self._apart])
            raise QuestionError(f"no such question; there are {known}", missing=True)
        with self._lock:
            return self._together[question](query)

    def warm(self) -> None:
        """Read the run that is likely asked for first, so that its answers come at once."""
        with suppress(QuestionError, UserError):
            first = self.ask("runs", {})["runs"][0]["name"]
            self.ask("run", {"run": first})
            self.ask("episodes", {"run": first, "iteration": "all"})

    def _look(self) -> dict[str, Run]:
        if time.monotonic() - self._looked > LOOK_AGAIN_SECONDS or not self._runs:
            found = {**require_workspaces(self._root), **self._others}
            self._runs = {name: self._runs.get(name) or Run(name, folder) for name, folder in found.items()}
            self._looked = time.monotonic()
        return self._runs

    def _all(self, query: Query) -> Record:
        """Return every workspace in a few words."""
        found = [_in_short(run) for run in self._look().values()]
        return {"runs": sorted(found, key=lambda one: (not one["running"], -one["updated"]))}

    def _run(self, query: Query) -> Record:
        """Return the state of a run, and its curves from the `after`-th iteration line on (of the record `of`)."""
        run = self._named(query, "run")
        watched = run.look()
        of, lines = run.lines()
        after = _whole(query, "after", 0)
        seen = after if query.get("of", "") == of and after <= len(lines) else 0
        tail = watched.latest.get("policy")
        records = tail.records() if tail else [line["record"] for line in lines]
        return {
            "name": run.name, "title": run.title, "now": time.time(), "updated": watched.updated,
            "stages": _stages(run), "alarms": [printable(text) for text in alarms_of(records)],
            "checkpoint": tail.checkpoint["time"] if tail and tail.checkpoint else None,
            "recipe": _recipe(watched),
            "of": of, "seen": len(lines), "fresh": seen == 0,
            "curves": curves.points(_in_order(lines[seen:])) if seen else run.curves(),
            **({"layout": self._layout} if "after" not in query else {}),
        }  # fmt: skip

    def _results(self, query: Query) -> Record:
        """Return the gate's verdict, the evaluation, probes and settings of a run."""
        run = self._named(query, "run")
        facts = run.facts()
        verdict = sections.verdict(facts) if facts else None
        return {
            "title": sections.headline(facts)["title"] if facts and facts.tables else "",
            "verdict": verdict, "evaluation": comparison.evaluation(facts),
            "probes": (facts.tables or {}).get("probes", {}) if facts else {},
            "withdrawn": sections.withdrawal(facts) if facts else None,
            "settings": comparison.settings_of(run.look(), facts),
        }  # fmt: skip

    def _list_episodes(self, query: Query) -> Record:
        """Return a page of recorded episodes."""
        with self._lock:
            episodes = self._named(query, "run").episodes()
        there = episodes.iterations()
        wanted = query.get("iteration", "")
        number = None if wanted == "all" else _whole(query, "iteration", there[-1] if there else 0)
        sort = query.get("sort", SORTS[0])
        if sort not in SORTS:
            raise QuestionError(f"sort: one of {', '.join(SORTS)}")
        asked = Asked(
            iteration=number,
            family=query.get("family") or None,
            success=_yes(query, "success"),
            trained=_yes(query, "trained"),
            task=query.get("task") or None,
            sort=sort,
            ascending=query.get("order") == "up",
            offset=_whole(query, "offset", 0),
            limit=min(_whole(query, "limit", 50), MOST_ROWS),
        )
        span = [there[0], there[-1]] if there else []
        return {**episodes.page(asked), "iteration": number, "span": span, "recorded": len(there)}

    def _open_episode(self, query: Query) -> Record:
        """Return one episode with the credit of each turn."""
        with self._lock:
            run = self._named(query, "run")
            episodes = run.episodes()
        found = episodes.open(_whole(query, "iteration", 0), _whole(query, "place", 0))
        if found is None:
            raise QuestionError("This episode is not recorded (any more).", missing=True)
        return {**found, "prompt": task_prompt(run.folder / FOLDERS["tasks"], found["task_id"])}

    def _lineage(self, query: Query) -> Record:
        """Return the drawing of what a run's latest artifact was made from, and its nodes."""
        from geartrain.lineage.index import open_index
        from geartrain.reporting.flow import draw

        with self._lock:
            run = self._named(query, "run")
        made = [name for name in ORDER if (run.folder / FOLDERS[name] / MANIFEST).is_file()]
        if not made:
            return {"drawing": "", "nodes": [], "of": ""}
        try:
            with closing(open_index(run.watched.home)) as index:
                graph = index.up(index.resolve(str(run.folder / FOLDERS[made[-1]])))
        except UserError as error:
            return {"drawing": "", "nodes": [], "of": made[-1], "note": str(error)}
        # the page's policy allows no style attributes; the script sets the sizes
        drawing = re.sub(r' style="[^"]*"', "", str(draw(graph)), count=1)
        return {"drawing": drawing, "nodes": [asdict(node) for node in graph], "of": made[-1]}

    def _compare(self, query: Query) -> Record:
        """Return the settings in which two runs differ, the evaluations and the curves of both."""
        runs = [self._named(query, key) for key in ("run", "other")]
        watched = [run.look() for run in runs]
        facts = [run.facts() for run in runs]
        settings = [comparison.settings_of(one, found) for one, found in zip(watched, facts, strict=True)]
        sides = []
        for run, found in zip(runs, facts, strict=True):
            verdict = sections.verdict(found) if found else None
            sides.append(
                {
                    "name": run.name,
                    "title": run.title,
                    "curves": run.curves(),
                    "evaluation": comparison.evaluation(found),
                }
                | {"promoted": verdict["promoted"] if verdict else None}
            )
        return {
            "sides": sides, "layout": self._layout, "settings": comparison.different(*settings),
            "same_tasks": comparison.same_tasks(*facts),
        }  # fmt: skip

    @cached_property
    def _layout(self) -> list[Record]:
        return curves.layout()

    def _named(self, query: Query, key: str) -> Run:
        run = self._look().get(query.get(key, ""))
        if run is None:
            raise QuestionError(f"{key}: no workspace of this name here.", missing=True)
        return run


def page_file(name: str) -> bytes | None:
    """Return a file of the page, None: there is none of this name. Its style is the report's, and what it adds."""
    if name == "style.css":
        report = files("geartrain.reporting").joinpath("report.css")
        return report.read_bytes() + files("geartrain.viewer").joinpath("page", "page.css").read_bytes()
    folder = files("geartrain.viewer").joinpath("page")
    known = {entry.name: entry for entry in folder.iterdir() if entry.is_file()}
    return known[name].read_bytes() if name in known and name != "page.css" else None


def _in_order(lines: Sequence[Record]) -> list[Record]:
    """Return the iterations by index; of one that was done again the last."""
    newest = {line["index"]: line for line in lines}
    return [newest[index] for index in sorted(newest)]


def _in_short(run: Run) -> Record:
    watched = run.look()
    stages = watched.stages()
    at = current(stages)
    facts = run.facts() if any(stage.state == "done" for stage in stages) else None
    decision = facts.decision if facts else None
    done = sum(stage.state == "done" for stage in stages)
    after = next((row for row in comparison.evaluation(facts) if row["split"] == "test"), None)
    return {
        "name": run.name,
        "title": run.title,
        "updated": watched.updated,
        "running": at is not None and at.state == "running",
        "state": at.state if at else {0: "waiting", len(stages): "done"}.get(done, "idle"),
        "stage": at.name if at else "",
        "progress": asdict(at.progress) if at and at.progress else None,
        "done": done,
        "stages": len(stages),
        "recipe": _recipe(watched),
        "promoted": decision.get("promoted") if decision else None,
        "test": after["after"]["estimate"] if after else None,
        "gain": after["gain"] if after else None,
    }


def _stages(run: Run) -> list[Record]:
    facts = run.facts()
    rows = []
    for stage in run.watched.stages():
        row = {**asdict(stage), "reason": printable(stage.reason, LONGEST_REASON)}
        if row["seconds"] is None and facts and stage.name in facts.resources:
            row["seconds"] = facts.resources[stage.name].get("seconds")
        if facts and stage.state == "waiting" and stage.name in facts.failures:  # it has no live record
            row |= {"state": "failed", "reason": printable(facts.failures[stage.name], LONGEST_REASON)}
        rows.append(row)
    return rows


def _recipe(watched: Watched) -> str:
    section = comparison.settings_of(watched, None).get("policy")
    return str(section.get("recipe", "")) if isinstance(section, Mapping) else ""


def _whole(query: Query, key: str, default: int) -> int:
    text = query.get(key, "")
    if text == "":
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise QuestionError(f"{key}: expected a whole number")
    return int(text)


def _yes(query: Query, key: str) -> bool | None:
    return {"yes": True, "no": False}.get(query.get(key, ""))
