"""The HTML report of a workspace: one self-contained file, whatever has been run so far."""

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from geartrain.artifacts import write_atomically
from geartrain.reporting import sections
from geartrain.reporting.facts import gather
from geartrain.reporting.learning import data_and_models, learning
from geartrain.reporting.results import results
from geartrain.reporting.summary import summary

__all__ = ["build_report", "render_report", "summary"]

TARGET = Path("reports/index.html")


def build_report(workspace: Path) -> Path:
    """Write `reports/index.html` in a workspace and return its path.

    Parts that have not been run are replaced by a note that says what to run.

    Raises:
        UserError: the folder holds no finished stage and no lineage event.
    """
    path = workspace / TARGET
    write_atomically(path, render_report(workspace))
    return path


def render_report(workspace: Path) -> str:
    """Return the report's HTML; equal workspaces give equal text. Raises as `build_report`."""
    facts = gather(workspace)
    folder = files("geartrain.reporting")
    environment = Environment(autoescape=True)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text(encoding="utf-8"))
    return template.render(
        name=facts.name,
        # Our own file, and free of "</style": nothing in it needs escaping.
        css=Markup(folder.joinpath("report.css").read_text(encoding="utf-8")),  # noqa: S704
        headline=sections.headline(facts),
        pipeline=sections.pipeline(facts),
        results=results(facts),
        learning=learning(facts),
        episode=sections.episode(facts),
        parts=data_and_models(facts),
        lineage=sections.lineage(facts),
        gate_note=sections.missing(facts, "promotion"),
    )
