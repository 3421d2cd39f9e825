"""Where a comparison cannot show anything: said in words, since a gain of 0 there looks like a finding."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from geartrain.study.collect import CellResult

EQUAL_WITHIN = 0.1
"""Share of the control's environment steps by which a variant's may differ and still count as equal."""


def warnings(cells: Sequence[CellResult], control: str) -> list[str]:
    """Return what makes numbers of one environment empty, a sentence each; nothing where all is well."""
    if not cells:
        return []
    found = [*_uneven_ground(cells), *_uneven_steps(cells, control)]
    untrained = sum(cell.kept_iteration == 0 for cell in cells)
    if untrained:
        found.append(
            f"In {untrained} of {len(cells)} cells the warm start itself was best on `val`: their success is that of "
            "the warm start, not of what was trained, and between two of them every gain is 0."
        )
    for level, where in ((0.0, "fails"), (1.0, "is solved")):
        stuck = [
            "_".join(measure)
            for measure in sorted({measure for cell in cells for measure in cell.success})
            if {value for cell in cells for value in cell.success.get(measure, {}).values()} == {level}
        ]
        if stuck:
            found.append(f"Every task {where} in every cell of {', '.join(stuck)}: no method can be told from another.")
    heights = {y for cell in cells for y in cell.curve.y}
    if len(heights) == 1:
        found.append(f"Every learning curve stays at {100 * heights.pop():g} %: its area and its steps say nothing.")
    for moment in sorted({moment for cell in cells for moment in cell.credit}, reverse=True):
        blank = sum(cell.credit[moment].credited == 0 for cell in cells if moment in cell.credit)
        if blank:
            found.append(
                f"In {blank} of {len(cells)} cells no turn has credit {moment} training, because no siblings differ: "
                "their scores against the exact advantage are those of a coin, not of the method."
            )
    return found


def _uneven_ground(cells: Sequence[CellResult]) -> Iterator[str]:
    """Find cells of one seed that did not start from the same weights: another machine makes others of the same seed.

    A record from before `ground` was written down is known by where its curve starts, or not at all.
    """
    for seed in sorted({cell.cell.seed for cell in cells}):
        same = [cell for cell in cells if cell.cell.seed == seed]
        grounds = {cell.ground for cell in same if cell.ground}
        starts = {cell.curve.y[0] for cell in same}
        if len(grounds) > 1 or len(starts) > 1:
            yield (
                f"Cells of seed {seed} started from different weights, so its gains are not those of a method. Run all "
                "variants of a seed in one place; delete the records of the others."
            )


def _uneven_steps(cells: Sequence[CellResult], control: str) -> Iterator[str]:
    steps: dict[str, dict[int, int]] = defaultdict(dict)
    for cell in cells:
        steps[cell.cell.variant][cell.cell.seed] = cell.environment_steps
    for variant, played in steps.items():
        both = played.keys() & steps[control].keys() if control in steps else ()
        if not both:
            continue
        own, base = sum(played[seed] for seed in both), sum(steps[control][seed] for seed in both)
        if abs(own - base) > EQUAL_WITHIN * base:
            yield (
                f"`{variant}` played {own / base:.1f} times the control's steps: what it ends with is not at equal "
                "environment steps; only its area and its steps to a level are."
            )
