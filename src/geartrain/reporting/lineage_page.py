"""A lineage graph for people and programs: as a tree in the terminal, JSON, Graphviz or one self-contained page."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from rich.markup import escape
from rich.tree import Tree

from geartrain.lineage.graph import Graph, Node, Reached
from geartrain.reporting.flow import MOST, describe, draw
from geartrain.wording import printable

WORDS = {"up": "What it was made from", "down": "What was made from it"}
_STYLES = {"source": "yellow", "dataset": "blue", "model": "magenta", "report": "cyan"}


def as_tree(graph: Graph, way: str, *, most: int) -> Tree:
    """Return a graph as a tree: each node once in full, later mentions by name; at most so many lines."""
    targets: dict[str, list[str]] = defaultdict(list)
    for source, target in graph.arrows:
        first, second = (source, target) if way == "down" else (target, source)
        targets[first].append(second)
    trunk = Tree(f"[bold]{WORDS[way]}[/bold]")
    shown: set[str] = set()
    waiting = [(trunk, root) for root in reversed(graph.roots)]
    lines = 0
    while waiting:
        branch, place = waiting.pop()
        if lines >= most:
            trunk.add(f"… and {len(graph) - len(shown)} more; --limit shows more, --format json all")
            break
        lines += 1
        again = place in shown
        grown = branch.add(line_of(graph.nodes[place]) + (" [dim](see above)[/dim]" if again else ""))
        shown.add(place)
        if not again:
            waiting += [(grown, other) for other in reversed(targets[place])]
    return trunk


def line_of(node: Node) -> str:
    """Return a node as a line for a terminal, with Rich's marks."""
    when = f" [dim]{_shown(node.time[:19].replace('T', ' '))}[/dim]" if node.time else ""
    if node.kind == "run":
        state = "" if node.state == "COMPLETE" else f" [red]{_shown(node.state)}[/red]"
        why = f" [red]{_shown(node.error[:100])}[/red]" if node.error else ""
        return f"run {_shown(node.name)} [dim]{_shown(node.id)}[/dim]{state}{when}{why}"
    style = _STYLES.get(node.type, "default")
    promoted = " [bold green]promoted[/bold green]" if node.promoted else ""
    licence = f" [dim]licence {_shown(node.licence)}[/dim]" if node.licence else ""
    name = f"[{style}]{_shown(node.type)} {_shown(node.name)}[/{style}]"
    return f"{name} [dim]sha256:{_shown(node.digest[:16])}[/dim]{promoted}{licence}{when}"


def _shown(text: str) -> str:
    """Return a text of somebody else's without what a terminal, or Rich, would take for more than text."""
    return escape(printable(text))


def as_json(graphs: Mapping[str, Graph]) -> str:
    """Return graphs as JSON: by direction, their roots, nodes and arrows."""
    record = {
        way: {"roots": graph.roots, "nodes": [asdict(node) for node in graph], "arrows": graph.arrows}
        for way, graph in graphs.items()
    }
    return json.dumps(record, indent=2, sort_keys=True)


def as_dot(graphs: Mapping[str, Graph]) -> str:
    """Return graphs in Graphviz's language."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif", fontsize=10];']
    nodes = {node.id: node for graph in graphs.values() for node in graph}
    for node in nodes.values():
        shape = "oval" if node.kind == "run" else "box"
        second = node.state if node.kind == "run" else node.digest[:12]
        bold = ", penwidth=2" if node.promoted else ""
        label, tip = _quoted(f"{node.name}\n{second}"), _quoted(describe(node))
        lines.append(f"  {_quoted(node.id)} [shape={shape}, label={label}, tooltip={tip}{bold}];")
    arrows = dict.fromkeys(arrow for graph in graphs.values() for arrow in graph.arrows)
    lines += [f"  {_quoted(source)} -> {_quoted(target)};" for source, target in arrows]
    return "\n".join([*lines, "}"])


def as_html(root: Node, graphs: Mapping[str, Graph]) -> str:
    """Return one self-contained page with a drawing of each graph."""
    folder = files("geartrain.reporting")
    template = Environment(autoescape=True).from_string(folder.joinpath("lineage.html.j2").read_text("utf-8"))
    css = Markup(folder.joinpath("report.css").read_text("utf-8"))  # noqa: S704 - our own file
    parts = [_part(way, graph) for way, graph in graphs.items()]
    return template.render(title=root.label, root=describe(root), css=css, parts=parts)


def reached_lines(reached: Sequence[Reached]) -> list[str]:
    """Return the models that some data has reached as lines for a terminal, each with the way to it."""
    lines = []
    for found in reached:
        way = " → ".join(node.name if node.kind == "artifact" else f"({node.name})" for node in found.way)
        lines += [line_of(found.model), f"    [dim]{_shown(way)}[/dim]"]
    return lines


def _part(way: str, graph: Graph) -> dict[str, Any]:
    kinds: dict[str, int] = defaultdict(int)
    for node in graph:
        kinds[node.type or "run"] += 1
    words = ", ".join(f"{number} {kind}{'s' * (number != 1)}" for kind, number in sorted(kinds.items()))
    more = max(0, len(graph) - MOST)
    return {
        "title": WORDS[way],
        "words": f"{words}." if len(graph) > len(graph.roots) else "Nothing, as far as this lineage knows.",
        "drawing": draw(graph, label=WORDS[way]), "nodes": list(graph), "drawn": len(graph) - more, "more": more,
    }  # fmt: skip


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
