"""A lineage graph as a drawing: from left to right, what was read, the run that read it, and what that made.

Columns are the longest way from a beginning; within a column nodes stand near what they are tied to.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from geartrain.lineage.graph import Graph, Node

WIDTH, HEIGHT = {"artifact": 158, "run": 118}, {"artifact": 46, "run": 34}
COLUMN, ROW, MARGIN = 40, 16, 4
"""Room between columns and between rows; around all of it."""
MOST = 150
"""Nodes of a drawing that a person can read."""
_SWEEPS = 4
_NAME = Markup(' class="name"')


def draw(graph: Graph, *, label: str = "What was made from what") -> Markup:
    """Return the SVG of a graph; of one with more than `MOST` nodes the nearest ones."""
    nodes = dict(list(graph.nodes.items())[:MOST])
    arrows = [(a, b) for a, b in graph.arrows if a in nodes and b in nodes and a != b]
    columns = _columns(nodes, arrows)
    widths = [max(WIDTH[nodes[node].kind] for node in column) for column in columns]
    height = max(_tall(nodes, column) for column in columns) if columns else 0
    places: dict[str, tuple[float, float]] = {}
    x = float(MARGIN)
    for column, width in zip(columns, widths, strict=True):
        y = MARGIN + (height - _tall(nodes, column)) / 2
        for node in column:
            places[node] = (x + (width - WIDTH[nodes[node].kind]) / 2, y)
            y += HEIGHT[nodes[node].kind] + ROW
        x += width + COLUMN
    edges = [_edge(nodes[a], nodes[b], places[a], places[b]) for a, b in arrows]
    boxes = [_box(nodes[node], place, root=node in graph.roots) for node, place in places.items()]
    return Markup(
        '<svg class="graph flow" role="img" aria-label="{label}" viewBox="0 0 {width:g} {height:g}" '
        'style="min-width: {least:g}px; max-width: {width:g}px">{edges}{boxes}</svg>'
    ).format(
        label=label, width=x - COLUMN + MARGIN, height=height + 2 * MARGIN, least=min(x, 760 + 40 * len(columns)),
        edges=Markup("").join(edges), boxes=Markup("").join(boxes),
    )  # fmt: skip


def _columns(nodes: Mapping[str, Node], arrows: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Put each node behind everything that leads to it; then order columns so that arrows cross little."""
    before, after = defaultdict(set), defaultdict(set)
    for source, target in arrows:
        before[target].add(source)
        after[source].add(target)
    depth: dict[str, int] = {}
    left = dict.fromkeys(nodes)
    while left:
        ready = [node for node in left if all(other in depth for other in before[node])] or [next(iter(left))]
        for node in ready:
            depth[node] = max((depth[other] + 1 for other in before[node] if other in depth), default=0)
            del left[node]
    for node in sorted(nodes, key=lambda node: -depth[node]):  # what begins late stands right before its first reader
        if not before[node] and after[node]:
            depth[node] = max(0, min(depth[other] for other in after[node]) - 1)
    columns: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node in nodes:
        columns[depth[node]].append(node)
    for sweep in range(_SWEEPS):
        ties = before if sweep % 2 == 0 else after
        place = {node: row / max(1, len(column) - 1) for column in columns for row, node in enumerate(column)}
        for column in columns if sweep % 2 == 0 else columns[::-1]:
            column.sort(key=lambda node: _middle([place[other] for other in ties[node]], place[node]))
            place.update({node: row / max(1, len(column) - 1) for row, node in enumerate(column)})
    return [column for column in columns if column]


def _middle(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _tall(nodes: Mapping[str, Node], column: Sequence[str]) -> float:
    return sum(HEIGHT[nodes[node].kind] + ROW for node in column) - ROW


def _box(node: Node, place: tuple[float, float], *, root: bool) -> Markup:
    x, y = place
    width, height = WIDTH[node.kind], HEIGHT[node.kind]
    names = {"START": "unfinished", "FAIL": "failed", "ABORT": "ended"}
    kind = f"run {names.get(node.state, '')}" if node.kind == "run" else f"{node.type}{' promoted' * node.promoted}"
    second = "" if node.kind == "run" and node.state == "COMPLETE" else names.get(node.state, node.digest[:12])
    lines = [shorten(node.name, 20 if node.kind == "artifact" else 15), *([second] if second else [])]
    heights = (0.43, 0.8) if second else (0.62,)
    texts = [
        Markup('<text{} x="{:g}" y="{:g}">{}</text>').format(
            Markup("") if row else _NAME, x + 11, y + share * height, line
        )
        for row, (share, line) in enumerate(zip(heights, lines, strict=True))
    ]
    return Markup(
        '<g class="{kind}{root}"><title>{title}</title>'
        '<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="{rx}"/>{texts}</g>'
    ).format(
        kind=kind.strip(), root=" root" if root else "", title=describe(node), x=x, y=y, width=width, height=height,
        rx=height // 2 if node.kind == "run" else 8, texts=Markup("").join(texts),
    )  # fmt: skip


def describe(node: Node) -> str:
    """Return everything that is known of a node in one line."""
    if node.kind == "run":
        parts = [f"run of {node.job}", node.id, node.state, node.time, node.error]
    else:
        promoted = "promoted" if node.promoted else ""
        parts = [f"{node.type} {node.name}", f"sha256:{node.digest}", node.folder, node.licence, node.time, promoted]
    return " · ".join(part for part in parts if part)


def shorten(text: str, most: int) -> str:
    """Return a text of at most so many characters; what is cut is its middle."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def _edge(source: Node, target: Node, start: tuple[float, float], end: tuple[float, float]) -> Markup:
    x1, y1 = start[0] + WIDTH[source.kind], start[1] + HEIGHT[source.kind] / 2
    x2, y2 = end[0], end[1] + HEIGHT[target.kind] / 2
    bend = max(24.0, abs(x2 - x1) / 2)
    path = f"M {x1:g} {y1:g} C {x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return Markup('<path d="{}"><title>{} → {}</title></path>').format(path, source.name, target.name)
