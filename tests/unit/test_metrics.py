from geartrain.metrics import flatten


def test_numbers_come_out_flat_and_everything_else_is_left_out() -> None:
    nested = {"success": 0.5, "tasks": {"val": 3, "test": {"n": 4}}, "ok": True, "why": "x", "none": None, "rows": [1]}
    assert flatten(nested) == {"success": 0.5, "tasks.val": 3.0, "tasks.test.n": 4.0, "ok": 1.0}


def test_what_is_not_finite_is_left_out() -> None:
    assert flatten({"nan": float("nan"), "inf": float("inf"), "fine": -1}) == {"fine": -1.0}
