"""A lineage graph as a drawing: from left to right, what was read, and what was made of it.

A run with one output is not drawn by itself: the arrows lead to what it made. One that failed, or made several things,
is. Columns are the longest way from a beginning; an arrow over several columns has a lane of its own in between.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup

from geartrain.lineage.graph import Graph, Node
from geartrain.wording import printable

WIDTH, HEIGHT = {"artifact": 132, "run": 108}, {"artifact": 46, "run": 34}
COLUMN, ROW, LANE, MARGIN = 32, 16, 6, 4
"""Room between columns and between rows; height of an arrow that passes a column; room around all of it."""
MOST = 150
"""Nodes of a drawing that a person can read."""
_SWEEPS = 6
_NAME = Markup(' class="name"')
_STATES = {"START": "unfinished", "FAIL": "failed", "ABORT": "ended"}
Arrow = tuple[str, str]
Point = tuple[float, float]


def draw(graph: Graph, *, label: str = "What was made from what") -> Markup:
    """Return the SVG of a graph; of one with more than `MOST` nodes the nearest ones."""
    nodes, arrows, makers = _simplify(dict(list(graph.nodes.items())[:MOST]), graph.arrows)
    columns, ways = _arrange(nodes, arrows)
    widths = [max((WIDTH[nodes[place].kind] for place in column if place in nodes), default=0) for column in columns]
    tall = [sum(_tall(nodes, place) + ROW for place in column) - ROW for column in columns]
    places: dict[str, Point] = {}
    x = float(MARGIN)
    for column, width, height in zip(columns, widths, tall, strict=True):
        y = MARGIN + (max(tall) - height) / 2
        for place in column:
            places[place] = (x + (width - WIDTH[nodes[place].kind]) / 2 if place in nodes else x, y)
            y += _tall(nodes, place) + ROW
        x += width + COLUMN
    spans = {place: width for column, width in zip(columns, widths, strict=True) for place in column}
    edges = [_edge(way, nodes, places, spans) for way in ways]
    boxes = [_box(nodes[place], places[place], makers.get(place), root=place in graph.roots) for place in nodes]
    return Markup(
        '<svg class="graph flow" role="img" aria-label="{label}" viewBox="0 0 {width:g} {height:g}" '
        'style="min-width: {least:g}px; max-width: {most:g}px">{edges}{boxes}</svg>'
    ).format(
        label=label, width=x - COLUMN + MARGIN, height=max(tall, default=0) + 2 * MARGIN,
        least=min(x - COLUMN + MARGIN, 960.0), most=x - COLUMN + MARGIN,
        edges=Markup("").join(edges), boxes=Markup("").join(boxes),
    )  # fmt: skip


def describe(node: Node) -> str:
    """Return everything that is known of a node in one line."""
    if node.kind == "run":
        parts = [f"run of {node.job}", node.id, node.state, node.time, node.error]
    else:
        promoted = "promoted" if node.promoted else ""
        parts = [f"{node.type} {node.name}", f"sha256:{node.digest}", node.folder, node.licence, node.time, promoted]
    return printable(" · ".join(part for part in parts if part))


def shorten(text: str, most: int) -> str:
    """Return a text of at most so many characters; what is cut is its middle."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def _simplify(nodes: dict[str, Node], arrows: Sequence[Arrow]) -> tuple[dict[str, Node], list[Arrow], dict[str, Node]]:
    """Leave out runs with one output that nobody else made; return nodes, arrows, and the runs left out by output."""
    made, makers = defaultdict(list), defaultdict(list)
    inside = [(a, b) for a, b in arrows if a in nodes and b in nodes and a != b]
    for source, target in inside:
        if nodes[source].kind == "run":
            made[source].append(target)
            makers[target].append(source)
    merged = {run: out[0] for run, out in made.items() if len(out) == 1 and len(makers[out[0]]) == 1}
    kept = {place: node for place, node in nodes.items() if place not in merged}
    ends = [(merged.get(a, a), merged.get(b, b)) for a, b in inside]
    left_out = {target: nodes[run] for run, target in merged.items()}
    return kept, list(dict.fromkeys((a, b) for a, b in ends if a != b)), left_out


def _arrange(nodes: Mapping[str, Node], arrows: Sequence[Arrow]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the columns, with lanes for arrows that pass, and the way of each arrow through them."""
    depth = _depths(nodes, arrows)
    columns: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for place in nodes:
        columns[depth[place]].append(place)
    ways = []
    before, after = defaultdict(set), defaultdict(set)
    for number, (source, target) in enumerate(arrows):
        lanes = [f"lane {number} {column}" for column in range(depth[source] + 1, depth[target])]
        for lane in lanes:
            columns[int(lane.rpartition(" ")[2])].append(lane)
        way = [source, *lanes, target]
        ways.append(way)
        for first, second in pairwise(way):
            before[second].add(first)
            after[first].add(second)
    row = {node: number / max(1, len(column) - 1) for column in columns for number, node in enumerate(column)}
    for sweep in range(_SWEEPS):
        ties = before if sweep % 2 == 0 else after
        for column in columns if sweep % 2 == 0 else columns[::-1]:
            middles = {node: _middle([row[other] for other in ties[node]], row[node]) for node in column}
            column.sort(key=middles.__getitem__)
            row.update({node: number / max(1, len(column) - 1) for number, node in enumerate(column)})
    return columns, ways


def _depths(nodes: Mapping[str, Node], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Return the column of each node: behind everything that leads to it, and right before its first reader."""
    before, after = defaultdict(set), defaultdict(set)
    for source, target in arrows:
        before[target].add(source)
        after[source].add(target)
    depth: dict[str, int] = {}
    left = dict.fromkeys(nodes)
    while left:  # in a circle, which only equal outputs make, somebody has to be first
        ready = [node for node in left if all(other in depth for other in before[node])] or [next(iter(left))]
        for node in ready:
            depth[node] = max((depth[other] + 1 for other in before[node] if other in depth), default=0)
            del left[node]
    for node in nodes:
        if not before[node] and after[node]:
            depth[node] = max(0, min(depth[other] for other in after[node]) - 1)
    return depth


def _middle(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _tall(nodes: Mapping[str, Node], place: str) -> float:
    return HEIGHT[nodes[place].kind] if place in nodes else LANE


def _box(node: Node, place: Point, maker: Node | None, *, root: bool) -> Markup:
    (x, y), width, height = place, WIDTH[node.kind], HEIGHT[node.kind]
    kind = f"run {_STATES.get(node.state, '')}" if node.kind == "run" else f"{node.type}{' promoted' * node.promoted}"
    second = _STATES.get(node.state, node.digest[:12])
    lines = [shorten(printable(node.name), 13 if node.kind == "artifact" else 12), *([second] if second else [])]
    heights = (0.43, 0.8) if second else (0.62,)
    texts = [
        Markup('<text{} x="{:g}" y="{:g}">{}</text>').format(
            Markup("") if row else _NAME, x + 10, y + share * height, line
        )
        for row, (share, line) in enumerate(zip(heights, lines, strict=True))
    ]
    title = "\n".join(map(describe, [node, *([maker] if maker else [])]))
    return Markup(
        '<g class="{kind}{root}"><title>{title}</title>'
        '<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="{rx}"/>{texts}</g>'
    ).format(
        kind=kind.strip(), root=" root" if root else "", title=title, x=x, y=y, width=width, height=height,
        rx=height // 2 if node.kind == "run" else 8, texts=Markup("").join(texts),
    )  # fmt: skip


def _edge(
    way: Sequence[str], nodes: Mapping[str, Node], places: Mapping[str, Point], spans: Mapping[str, float]
) -> Markup:
    """Return an arrow along its way: straight through its lanes, bent between columns."""
    first, last = nodes[way[0]], nodes[way[-1]]
    x, y = places[way[0]][0] + WIDTH[first.kind], places[way[0]][1] + HEIGHT[first.kind] / 2
    path = f"M {x:g} {y:g}"
    for place in way[1:]:
        left, top = places[place]
        middle = top + _tall(nodes, place) / 2
        bend = max(16.0, (left - x) / 2)
        path += f" C {x + bend:g} {y:g} {left - bend:g} {middle:g} {left:g} {middle:g}"
        x, y = left, middle
        if place not in nodes:
            x += spans[place]
            path += f" H {x:g}"
    return Markup('<path d="{}"><title>{} → {}</title></path>').format(path, first.name, last.name)
