"""What the report says about training: learning curve, panels, and the stages on the way to the policy."""

from collections.abc import Mapping, Sequence
from typing import Any

from geartrain.diagnosis.ranking import diagnose
from geartrain.reporting import svg
from geartrain.reporting.alarms import alarm_rows
from geartrain.reporting.facts import Facts, column
from geartrain.reporting.figures import Line, both_widths, line_figure
from geartrain.reporting.health import of_facts
from geartrain.reporting.panels import AFTER, FIRST, PANELS, SECOND, SUCCESS, THIRD, Panel, Series
from geartrain.reporting.sections import Context, missing, source
from geartrain.reporting.transcript import printable
from geartrain.wording import compact, percent

COLOURS = {AFTER: svg.AFTER, **dict(zip((FIRST, SECOND, THIRD), svg.SERIES, strict=False))}


def learning(facts: Facts) -> Context:
    """Return the learning curve, the small panels and the alarms of policy optimisation."""
    history = facts.histories.get("policy", ())
    if not history:
        return {"note": missing(facts, "policy")}
    lines = [line for series in SUCCESS if (line := _curve(history, series)).x]
    best = facts.metrics("policy").get("best_iteration")
    mark = (float(best), "kept") if isinstance(best, int | float) else None
    context: Context = {"panels": [drawn for panel in PANELS if (drawn := _panel(history, panel))]}
    context["alarms"] = alarm_rows(history)
    context["health"] = health(facts)
    if lines:
        context["curve"] = both_widths(
            lambda width, name: line_figure(
                lines,
                width=width,
                height=330 if width > 400 else 250,
                name=f"learning-{name}",
                label="Success by iteration of policy optimisation",
                x_label="updates of the policy",
                shares=True,
                mark=mark,
            )
        )
    episodes = [facts.parameter("policy", "policy", key) for key in ("tasks_per_iteration", "siblings")]
    sample = (
        f"{episodes[0]} tasks with {episodes[1]} siblings each, per iteration"
        if all(episodes)
        else f"{len(history)} records"
    )
    context["source"] = source(facts, "policy", sample)
    return context


def health(facts: Facts) -> Context:
    """Return what the diagnosis says first, see `geartrain diagnose`."""
    found = diagnose(of_facts(facts))
    if found.healthy:
        return {"text": f"healthy: none of {len(found.checked)} signs of trouble is there", "changes": []}
    first = found.causes[0]
    return {
        "sick": True,
        "text": f"{first.name.replace('_', ' ')} ({first.confidence}). {first.means.rstrip('.')}",
        "evidence": printable("; ".join(sign.text for sign in first.evidence), 600),
        "changes": [change.text() for change in first.changes],
    }


def data_and_models(facts: Facts) -> Context:
    """Return warm start, preferences, reward model and critic: curves and main numbers."""
    context: Context = {"cards": [], "notes": []}
    xs, ys = column(facts.histories.get("warm_start", ()), "loss")
    for stage, title, why, keys in CARDS:
        if stage not in facts.manifests:
            context["notes"].append({"title": title, **missing(facts, stage)})
            continue
        known = {**facts.metrics(stage), **((facts.quality or {}) if stage == "preferences" else {})}
        numbers = [(label, shown) for label, key in keys if (shown := _shown(known, key))]
        card: Context = {"title": title, "why": why, "numbers": numbers, "source": source(facts, stage, "")}
        if stage == "warm_start" and xs:
            card["figure"] = line_figure(
                [Line("", svg.AFTER, xs, _smoothed(ys))],
                width=340,
                height=190,
                name="warm-start",
                label="Loss of the supervised start",
                x_label="step",
            )
        context["cards"].append(card)
    return context


CARDS: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    # stage, title, meaning, (label, dotted name of the metric; "%" shows a share)
    (
        "warm_start",
        "Supervised start",
        "Negative log-likelihood per token of the demonstrations.",
        (
            ("Demonstrations", "demonstrations"),
            ("Expert's success", "%expert_success"),
            ("Parameters", "parameters"),
            ("Optimiser steps", "steps"),
            ("Last loss", "last_loss"),
        ),
    ),
    (
        "collect",
        "Sibling rollouts",
        "What the warm start does. Groups with both outcomes carry the credit.",
        (
            ("Trajectories", "trajectories"),
            ("Success", "%success"),
            ("Groups with both outcomes", "mixed_groups"),
            ("Groups", "groups"),
            ("Steps per episode", "mean_turns"),
            ("Invalid calls", "%invalid_calls"),
        ),
    ),
    (
        "preferences",
        "Preference pairs",
        "Siblings that the verifier tells apart. Half of the chosen longer: no length bias.",
        (
            ("Pairs for training", "pairs_by_split.train"),
            ("Pairs held out", "pairs_by_split.validation"),
            ("Tasks", "tasks"),
            ("Median margin", "margin.median"),
            ("Chosen is longer", "%length.chosen_longer"),
            ("Prompts on both sides", "prompts_in_both_splits"),
        ),
    ),
    (
        "reward_model",
        "Reward model",
        "On held-out pairs. No better than length alone: that is what it learned.",
        (
            ("Accuracy", "%validation_accuracy"),
            ("at least (95 %)", "%validation_accuracy_at_least"),
            ("Length alone", "%length_baseline_accuracy"),
            ("Calibration error", "calibration_error_after"),
            ("Trusted", "trusted"),
        ),
    ),
    (
        "critic",
        "Sibling critic",
        "Correlation with the credit labels of held-out tasks.",
        (
            ("All turns", "correlation"),
            ("Turns that siblings contradict", "correlation_contrast"),
            ("With the outcome", "correlation_outcome"),
            ("Trained on shuffled labels", "correlation_shuffled"),
        ),
    ),
)


def _shown(metrics: Mapping[str, Any], key: str) -> str:
    """Return the metric under a dotted name for people, or "" when there is none."""
    value: Any = metrics
    for part in key.removeprefix("%").split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return ""
    return percent(value, 1) if key.startswith("%") else compact(value)


def _curve(history: Sequence[Mapping[str, Any]], series: Series) -> Line:
    """Return a success curve over the number of updates behind the weights that were measured."""
    xs, ys = column(history, series.key)
    start, after = column(history[:1], f"start_{series.key}")[1], series.after
    x = [0.0] * len(start) + [x + after for x in xs]
    return Line(series.label, COLOURS[series.colour], x, start + ys, marked=after, faint=not after)


def _panel(history: Sequence[Mapping[str, Any]], panel: Panel) -> Context | None:
    lines = [Line(series.label, COLOURS[series.colour], *column(history, series.key)) for series in panel.series]
    lines = [line for line in lines if line.x]
    if not lines:
        return None
    prefix = "panel-" + panel.title.lower().replace(" ", "-")
    figure = line_figure(lines, width=340, height=180, name=prefix, label=panel.title, x_label="iteration")
    return {"title": panel.title, "meaning": panel.meaning, "figure": figure}


def _smoothed(values: Sequence[float], window: int = 9) -> list[float]:
    """Return a running mean over at most `window` values up to each."""
    return [sum(values[max(0, i - window + 1) : i + 1]) / min(i + 1, window) for i in range(len(values))]
