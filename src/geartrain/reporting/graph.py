"""The pipeline as a drawing: nine stages in a row, and above them the artifacts that skip some.

Drawn by hand, not by matplotlib: it is text in boxes, and the page's own style
sets its type.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

STAGES: Mapping[str, tuple[tuple[float, float], tuple[str, ...]]] = {
    # stage: ((column, lane), inputs); a test holds the inputs to the stages' own declarations
    "tasks": ((0, 0), ()),
    "warm_start": ((1, 0), ("tasks",)),
    "collect": ((2, 0), ("tasks", "warm_start")),
    "preferences": ((3, 0), ("tasks", "collect")),
    "reward_model": ((4, 0), ("preferences",)),
    "critic": ((4, 1), ("warm_start", "collect", "preferences")),
    "policy": ((5, 0), ("tasks", "warm_start", "preferences", "reward_model", "critic")),
    "evaluation": ((6, 0), ("tasks", "warm_start", "policy")),
    "promotion": ((7, 0), ("policy", "evaluation")),
}
WIDTH, HEIGHT, GAP, LANE = 112, 62, 18, 84
TOP = 74
"""Room for the arcs."""


@dataclass(frozen=True)
class Node:
    """A stage in the drawing."""

    title: str
    first: str = ""
    """Line below the title: its time."""
    second: str = ""
    """Line below that: what came out."""
    state: str = "done"
    """"done", "missing" or "failed"."""


def draw(nodes: Mapping[str, Node]) -> Markup:
    """Return the SVG of the pipeline; `nodes` by stage."""
    arcs = [_edge(source, target) for target, (_, inputs) in STAGES.items() for source in inputs]
    boxes = [_box(stage, nodes[stage]) for stage in STAGES]
    columns = 1 + max(place[0] for place, _ in STAGES.values())
    width, height = columns * (WIDTH + GAP) - GAP + 4, TOP + LANE + HEIGHT + 4
    return Markup(
        '<svg class="graph" role="img" aria-label="Stages of the pipeline and what each reads" '
        'viewBox="-2 0 {width:g} {height:g}" style="min-width: 900px">{edges}{boxes}</svg>'
    ).format(width=width, height=height, edges=Markup("").join(arcs), boxes=Markup("").join(boxes))


def _corner(stage: str) -> tuple[float, float]:
    column, lane = STAGES[stage][0]
    return column * (WIDTH + GAP), TOP + lane * LANE


def _box(stage: str, node: Node) -> Markup:
    x, y = _corner(stage)
    return Markup(
        '<g class="node {state}"><title>{stage}: {state}</title>'
        '<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="9"/>'
        '<text class="name" x="{left:g}" y="{a:g}">{title}</text>'
        '<text x="{left:g}" y="{b:g}">{first}</text><text x="{left:g}" y="{c:g}">{second}</text></g>'
    ).format(
        state=node.state, stage=stage, x=x, y=y, width=WIDTH, height=HEIGHT, left=x + 10,
        a=y + 20, b=y + 36, c=y + 52, title=node.title, first=node.first, second=node.second,
    )  # fmt: skip


def _edge(source: str, target: str) -> Markup:
    (x1, y1), (x2, y2) = _corner(source), _corner(target)
    right, middle = x1 + WIDTH, HEIGHT / 2
    near = STAGES[target][0][0] - STAGES[source][0][0] == 1
    if y1 == y2 and near:
        path = f"M {right:g} {y1 + middle:g} H {x2:g}"
    elif y1 == y2:  # over the stages in between
        span = STAGES[target][0][0] - STAGES[source][0][0]
        start, end = x1 + WIDTH * 0.72, x2 + WIDTH * 0.28
        rise = y1 - 10 - 10.5 * span
        path = f"M {start:g} {y1:g} C {start + 14:g} {rise:g} {end - 14:g} {rise:g} {end:g} {y2:g}"
    else:  # between lanes
        below = max(y1, y2) + middle
        start, end = (x1 + WIDTH / 2, x2) if y2 > y1 else (right, x2 + WIDTH / 2)
        path = (
            f"M {start:g} {y1 + HEIGHT:g} C {start:g} {below:g} {start + 20:g} {below:g} {end:g} {below:g}"
            if y2 > y1
            else f"M {start:g} {below:g} C {end - 20:g} {below:g} {end:g} {below:g} {end:g} {y2 + HEIGHT:g}"
        )
    kind = "near" if near and y1 == y2 else "far"
    return Markup('<path class="{}" d="{}"><title>{} reads {}</title></path>').format(kind, path, target, source)
