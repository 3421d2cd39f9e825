"""Whatever models do here, they do on the device they were put on, and say what they say on the CPU.

On the stand-in, which refuses what CUDA refuses; `tests/gpu` does the same on a GPU.
"""

import pytest

from tests.fakes.chores import CHORES, CPU, ELSEWHERE, fresh, numbers, same
from tests.fakes.standin import DEVICE, KIND, standin

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", CHORES)
def test_a_device_says_what_the_cpu_says(name, tmp_path):
    expected = numbers(CHORES[name](CPU, fresh(tmp_path, "cpu")))
    with standin() as rules:
        found = numbers(CHORES[name](DEVICE, fresh(tmp_path, "device")))
    same(found, expected)
    assert rules.done[KIND] > 0
    assert (rules.done["cpu"] > 0) is (name in ELSEWHERE), rules.done
