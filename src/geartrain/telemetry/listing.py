"""The metrics as tables for `docs/monitoring.md`: `python -m geartrain.telemetry.listing` prints them."""

from geartrain.telemetry import GROUPS, Label, Metric


def tables() -> str:
    """Return one table per group, in Markdown, under its heading."""
    return "\n\n".join(
        "\n".join([f"### {title}\n", "| metric | kind | from | what |", "|---|---|---|---|", *map(_row, metrics)])
        for title, metrics in GROUPS.items()
    )


def label_table() -> str:
    """Return every label, how many values it may have, and why no more."""
    labels: dict[str, Label] = {}
    for metrics in GROUPS.values():
        for metric in metrics:
            if metric.kind != "info":
                labels |= {f"{label.name}: {label.why}": label for label in metric.labels}
    rows = [f"| `{label.name}` | {label.bound} | {label.why} |" for label in labels.values()]
    return "\n".join(["| label | values | which |", "|---|---|---|", *rows])


def _row(metric: Metric) -> str:
    labels = ", ".join(label.name for label in metric.labels)
    name = metric.name + (f"{{{labels}}}" if labels else "")
    source = "a rule" if metric.source.startswith("line: ") else f"`{metric.source}`"
    source = source if metric.of in ("policy", "") else f"{source}, {_stage(metric)}"
    return f"| `{name}` | {metric.kind} | {source} | {metric.help} |"


def _stage(metric: Metric) -> str:
    return "any stage" if metric.of == "*" else f"`{metric.of}`"


if __name__ == "__main__":
    print(f"{label_table()}\n\n{tables()}")
