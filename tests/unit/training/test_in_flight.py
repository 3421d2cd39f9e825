"""What was played is there, bit for bit, for the weights that played it and for no others."""

from geartrain.training.in_flight import InFlight
from tests.fakes.synthetic import episodes


def test_rounds_come_back_as_they_were_until_they_are_forgotten(tmp_path):
    kept = InFlight(tmp_path)
    kept.write(3, 0, episodes())
    played = kept.read(3, 0)  # log-probs are float32 from here on, as a sampler's are from the start
    assert [t.token_ids() for t in played] == [t.token_ids() for t in episodes()]
    assert kept.read(4, 0) is None
    kept.write(3, 0, played)
    kept.write(3, 1, played[:2])
    kept.write(2, 0, played[:1])
    assert InFlight(tmp_path).read(3, 0) == played
    kept.forget(but=3)
    assert kept.read(2, 0) is None
    assert kept.read(3, 1) == played[:2]
    kept.forget(but=4)
    assert list((tmp_path / "in-flight").iterdir()) == []


def test_a_torn_file_is_no_round(tmp_path):
    (tmp_path / "in-flight").mkdir()
    (tmp_path / "in-flight" / ".000000003-0.parquet.tmp").write_bytes(b"half")
    assert InFlight(tmp_path).read(3, 0) is None
