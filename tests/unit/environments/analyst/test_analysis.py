import pytest

from geartrain.environments.analyst.analysis import OPERATIONS, analyze
from geartrain.environments.analyst.query import Table
from geartrain.environments.tools import ToolError

MONTHS = Table(("month", "v"), (("2010-01", 10), ("2010-02", 40.0), ("2010-03", 30), ("2010-04", 28)))


CASES = [
    ("top", "2010-02", 40),
    ("bottom", "2010-01", 10),
    ("sum", None, 108),
    ("mean", None, 27),
    ("diff", None, 18),
    ("growth", None, 180),
    ("share", None, 100 * 10 / 28),
    ("outlier", "2010-01", 10),
]


@pytest.mark.parametrize(("op", "label", "value"), CASES)
def test_operations(op: str, label: str | None, value: float) -> None:
    """10, 40, 30, 28: sum 108, mean 27; distances 17, 13, 3, 1, so the odd one is the first, not the top."""
    assert analyze([MONTHS], op, "v") == (label, pytest.approx(value))


def test_every_operation_is_tested() -> None:
    assert list(OPERATIONS) == [op for op, _, _ in CASES]


def test_several_results_are_read_in_order() -> None:
    one, other = Table(("v",), ((50,),)), Table(("v",), ((75,),))
    assert analyze([one, other], "growth", "v") == (None, 50.0)
    assert analyze([other, one], "diff", "v") == (None, -25.0)


@pytest.mark.parametrize(
    ("table", "op", "column", "kind"),
    [
        (MONTHS, "top", "w", "unknown_column"),
        (MONTHS, "top", "month", "not_numeric"),
        (Table(("v",), ((None,),)), "sum", "v", "not_numeric"),
        (Table(("v",), ((float("inf"),),)), "sum", "v", "not_numeric"),
        (Table(("v",), ((1.5e308,), (1.5e308,))), "mean", "v", "not_numeric"),
        (Table(("v",), ()), "top", "v", "too_few_rows"),
        (Table(("v",), ((1,),)), "diff", "v", "too_few_rows"),
        (Table(("v",), ((1,), (2,))), "outlier", "v", "too_few_rows"),
        (Table(("v",), ((0,), (2,))), "growth", "v", "division_by_zero"),
        (Table(("v",), ((2,), (0,))), "share", "v", "division_by_zero"),
        (Table(("v",), ((2,), (3,)), partial=True), "sum", "v", "partial_data"),
    ],
)
def test_faults_have_kinds(table: Table, op: str, column: str, kind: str) -> None:
    with pytest.raises(ToolError) as caught:
        analyze([table], op, column)
    assert caught.value.kind == kind
