"""Work in processes of its own: same results, errors that arrive, nobody left behind."""

import os

import pytest

from geartrain.errors import InfrastructureError, UserError
from geartrain.rollouts.parallel import run_apart
from tests.fakes import pieces


def run(work, tmp_path, texts=("a", "b"), threads=2):
    seen = []
    run_apart(work, [(tmp_path / text, text) for text in texts], threads=threads, on_progress=seen.append)
    return seen


def test_pieces_run_apart_share_the_threads_and_report_progress(tmp_path):
    assert sum(run(pieces.write, tmp_path, threads=4)) == 12
    assert [(tmp_path / text).read_text() for text in "ab"] == ["a 2", "b 2"]


@pytest.mark.parametrize(("texts", "threads"), [(("a", "b"), 1), (("a",), 8)])
def test_one_thread_or_one_piece_stays_in_this_process(tmp_path, texts, threads):
    before = os.environ.get("OMP_NUM_THREADS", "")
    assert run(pieces.write, tmp_path, texts, threads) == [2, 2, 2] * len(texts)
    assert (tmp_path / "a").read_text() == f"a {before}"


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (pieces.fail_as_user, UserError, "mend it"),
        (pieces.fail_with_baggage, InfrastructureError, "no disk"),
        (pieces.die, InfrastructureError, "lack of memory"),
        (pieces.work_forever_unless_stopped, UserError, "the other one failed"),
    ],
)
def test_failures_arrive_with_their_kind_and_stop_the_others(tmp_path, work, error, message):
    with pytest.raises(error, match=message):
        run(work, tmp_path, ("goes on", "fails"))
