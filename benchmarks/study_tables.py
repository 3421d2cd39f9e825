"""The tables of a study that `docs/experiments.md` quotes: `python benchmarks/study_tables.py studies/results/first`.

`results.md` of the same folder has everything; these are what fits on a page.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from geartrain.study.markdown import interval, spread
from geartrain.wording import table


def tables(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table per environment, then the credit of turns where their exact advantage is known."""
    control = results["study"]["control"]
    for name, environment in results["environments"].items():
        yield f"`{name}`\n\n{_gains(environment, control)}"
    for environment in results["environments"].values():
        if any(variant["credit"] for variant in environment["variants"].values()):
            yield _credit(environment, control)


def _gains(environment: Mapping[str, Any], control: str) -> str:
    head = [
        "variant",
        "test success, sampled, %",
        f"over `{control}`: points, p (Holm), could see",
        "area, %",
        f"steps to `{control}`'s end",
        "alarms",
    ]
    variants = environment["variants"]
    rows = []
    for name in _in_order(variants, control):
        variant = variants[name]
        gain = environment["comparisons"]["test_sampled"].get(name)
        beside, seeds = variant["beside_control"], len(variant["seeds"])
        reached = beside["steps"]
        steps = "not reached" if reached is None else f"{reached:,.0f}"
        if reached is not None and name != control:
            steps += f", {reached / beside['control_steps']:.2f} x"
        alarms = ", ".join(f"{alarm} {count}/{seeds}" for alarm, count in sorted(variant["alarms"].items()))
        success, area = variant["success"]["test_sampled"], variant["area"]
        rows.append([f"`{name}`", _percent(success), _gain(gain), _percent(area), steps, alarms])
    return table(head, rows)


def _credit(environment: Mapping[str, Any], control: str) -> str:
    head = ["variant", "rank, all turns", "planning", "doing", "sign", "key steps", "rank, after training"]
    rows, variants = [], environment["variants"]
    for name in _in_order(variants, control):
        variant = variants[name]
        before, after = variant["credit"]["before"], variant["credit"]["after"]
        numbers = [before[phase]["rank_correlation"] for phase in ("all", "plan", "do")]
        numbers += [before["all"]["sign_agreement"], before["all"]["key_recall"], after["all"]["rank_correlation"]]
        coarser = before["all"]["coarser"]
        cells = [f"{number:.2f}".replace("-0.00", "0.00") for number in numbers]
        rows.append([f"`{name}`", *cells, "" if coarser is None else f"{coarser:.2f}"])
    return table([*head, "planning coarser"], rows)


def _in_order(variants: Mapping[str, Any], control: str) -> list[str]:
    return sorted(variants, key=lambda name: (name != control, name))


def _percent(value: Mapping[str, Any]) -> str:
    return spread(value).replace(" %", "")


def _gain(gain: Mapping[str, Any] | None) -> str:
    if gain is None:
        return ""
    tasks = gain["over_tasks"]
    return f"{interval(tasks)}, {tasks['p_holm']:.3f}, {100 * tasks['minimum_detectable_effect']:.1f}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `geartrain study` wrote")
    results = json.loads((parser.parse_args().folder / "results.json").read_text("utf-8"))
    print("\n\n".join(tables(results)))


if __name__ == "__main__":
    main()
