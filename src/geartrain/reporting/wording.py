"""Numbers as people read them."""

from collections.abc import Mapping


def percent(value: float, digits: int = 0) -> str:
    """Return a share in percent."""
    return f"{100 * value:.{digits}f} %"


def points(gain: Mapping[str, float]) -> str:
    """Return a gain as "+12.0 points [+5.0, +19.0]"."""
    return f"{100 * gain['estimate']:+.1f} points [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"


def rate(record: Mapping[str, float]) -> str:
    """Return a success rate as "42.0 % [34.0, 50.0]"."""
    return f"{100 * record['estimate']:.1f} % [{100 * record['low']:.1f}, {100 * record['high']:.1f}]"


def compact(value: float) -> str:
    """Return a number in at most about six characters."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def p_value(value: float) -> str:
    """Return a p-value as "p = 0.031"."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
