"""Who does what, and in which order the results stand: the same on every rank."""

import subprocess
import sys

import pytest

from geartrain.errors import UserError
from geartrain.ranks import ALONE, Ranks, deal, deal_whole, in_place, join_ranks


def test_shares_are_even_ascend_and_may_be_empty():
    assert deal([1, 5, 1, 4, 2], 2) == [[0, 1, 2], [3, 4]]
    assert deal([3, 3], 4) == [[0], [1], [], []]
    assert deal([], 2) == [[], []]


def test_what_belongs_together_goes_to_one_hand():
    assert deal_whole("abab", [1, 9, 1, 9], 2) == [[1, 3], [0, 2]]
    assert deal_whole("aabbc", [1] * 5, 2) == [[0, 1, 4], [2, 3]]


def test_dealt_results_come_back_in_order():
    costs = [4, 1, 3, 2, 5]
    shares = deal(costs, 3)
    assert in_place(shares, [[10 * index for index in share] for share in shares]) == [0, 10, 20, 30, 40]
    assert ALONE.apart(costs, lambda rows: [costs[row] for row in rows]) == costs


def test_without_torchrun_there_is_one_rank():
    assert join_ranks({}) is ALONE
    assert join_ranks({"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}) is ALONE
    assert (Ranks().leads, ALONE.gather(3), ALONE.first("x")) == (True, [3], "x")


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"WORLD_SIZE": "2"}, "RANK, MASTER_ADDR, MASTER_PORT is not"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "rank 2 of 2"),
    ],
)
def test_half_an_environment_is_refused(environment, says):
    with pytest.raises(UserError, match=says):
        join_ranks(environment)


LIFE = """
import atexit
from geartrain.ranks import Group, leave

class Last:
    def __del__(self):
        print("taken down")

last = Last()
atexit.register(print, "at exit")
Group.joined = {joined}
print("done", end=" ")
leave(75)
"""


@pytest.mark.parametrize(("joined", "printed"), [(True, "done at exit\n"), (False, "done at exit\ntaken down\n")])
def test_a_process_that_was_in_a_group_keeps_its_exit_code_and_leaves_its_interpreter_standing(joined, printed):
    """gloo's threads kill an interpreter that is being taken down: the run would fail with all its work done."""
    life = [sys.executable, "-c", LIFE.format(joined=joined)]
    done = subprocess.run(life, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (75, printed, "")
