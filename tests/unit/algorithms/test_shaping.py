import pytest

from geartrain.algorithms.shaping import overlong_penalty


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (500, -1.0)]
)
def test_a_line_from_the_buffers_start_to_the_limit(length, expected):
    assert overlong_penalty(length, limit=100, share=0.2) == pytest.approx(expected)


def test_no_buffer_no_penalty():
    assert overlong_penalty(10**6, limit=100, share=0.0) == 0.0
