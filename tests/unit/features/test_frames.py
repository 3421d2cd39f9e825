import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geartrain.features.errors import FrameError
from geartrain.features.frames import Frame, headroom_weights, read_frame, require_rows, write_frame
from tests.unit.features.conftest import ORIGIN


def frame(**columns):
    return Frame(pa.table(columns), "rlar_v1", "ab12", ORIGIN)


def test_a_frame_says_where_its_features_are_from(tmp_path):
    write_frame(tmp_path, frame(task_id=["t"], margin=[0.5]))
    found = read_frame(tmp_path, "rlar_v1")
    assert found.told() == {"service": "rlar_v1", "definitions": "ab12", "as_of": "2000-01-01T00:00:00+00:00"}
    assert found.column("margin") == [0.5]


def test_what_is_no_frame_of_the_service_is_refused(tmp_path):
    with pytest.raises(FrameError, match=r"no frame of critic_v1\. Run the stage `preferences`"):
        read_frame(tmp_path, "critic_v1")
    write_frame(tmp_path, frame(task_id=["t"]))
    (tmp_path / "rlar_v1.parquet").rename(tmp_path / "critic_v1.parquet")
    with pytest.raises(FrameError, match="a frame of rlar_v1, not of critic_v1"):
        read_frame(tmp_path, "critic_v1")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "rlar_v1.parquet")
    with pytest.raises(FrameError, match="not a frame"):
        read_frame(tmp_path, "rlar_v1")


def test_rows_have_to_be_those_that_are_trained_on():
    given = frame(task_id=["a", "b"])
    require_rows(given, {"task_id": ["a", "b"]})
    with pytest.raises(FrameError, match="has 2 rows, not 3"):
        require_rows(given, {"task_id": ["a", "b", "c"]})
    with pytest.raises(FrameError, match="has task_id 'b' in row 1, not 'c'"):
        require_rows(given, {"task_id": ["a", "c"]})


def test_weights_have_mean_one_and_strength_zero_is_exactly_one():
    given = frame(headroom=[0.2, 0.6, None, 0.1])
    assert headroom_weights(given, 0.0).tolist() == [1.0] * 4
    whole = headroom_weights(given, 1.0)
    assert whole.mean() == pytest.approx(1.0)
    assert whole[1] == pytest.approx(3 * whole[0])
    assert whole[2] == 1.0
    half = headroom_weights(given, 0.5)
    assert half.tolist() == pytest.approx(((1 + whole) / 2).tolist())
    assert headroom_weights(frame(headroom=[0.0, None]), 1.0).tolist() == [1.0, 1.0]
