"""Artifacts in a bucket (moto's S3), on a disk and in memory: whole or not at all, sent once, verified in place."""

import json
import multiprocessing
import os
from pathlib import Path

import fsspec
import pytest

from geartrain import artifacts, places
from geartrain.artifacts import MANIFEST
from geartrain.cluster import storage
from geartrain.cluster.patience import StoppedError
from geartrain.cluster.storage import Storage
from geartrain.errors import InfrastructureError, UserError
from geartrain.places import MissingError, Place, locate
from tests.fakes.object_store import Fault

ODD = "ein Weg/mit #?%20+&=~ é 東/Übung"
BUCKET = "a.bucket-with.dots"


def seal(folder, files, **making):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    usual = {"stage": "critic", "parameters": {"seed": 0}, "inputs": {}, "metrics": {"loss": 0.5}}
    return artifacts.write_manifest(folder, **{**usual, **making})


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "artifact"
    seal(path, {"weights.bin": bytes(range(256)) * 300, "deep/er/odd name #1?.json": b"{}", "empty": b""})
    return path


@pytest.fixture
def digest(folder):
    return artifacts.read_manifest(folder).digest


@pytest.fixture
def keeper(time):
    return Storage(time.clock())


@pytest.fixture
def small_blocks(monkeypatch):
    """Many reads to a file."""
    monkeypatch.setattr(places, "BLOCK", 10_000)
    monkeypatch.setattr(places, "TOGETHER", 2)


@pytest.fixture(params=["s3", "file", "path", "memory"])
def prefix(request, tmp_path, monkeypatch):
    """A prefix in each kind of store."""
    if request.param == "s3":
        server = request.getfixturevalue("store")
        server.bucket(BUCKET)
        return f"s3://{BUCKET}/{tmp_path.name}/{ODD}"
    if request.param == "memory":
        files = fsspec.filesystem("memory", skip_instance_cache=True)
        inside = {"mem": Place(files, f"/{tmp_path.name}", "mem")}
        real = places.locate

        def find(uri):
            head, _, rest = uri.partition("/")
            return inside["mem"] / rest if head == "mem" and rest else inside.get(uri) or real(uri)

        monkeypatch.setattr(storage, "locate", find)
        return "mem"
    return (tmp_path / "odd #% é").as_uri() if request.param == "file" else str(tmp_path / "odd #% é")


def test_published_is_fetched_again_byte_for_byte(prefix, folder, digest, keeper, tmp_path):
    uri = keeper.publish(folder, prefix)
    assert uri.endswith(f"/{digest}")
    assert keeper.inspect(uri) == keeper.manifest(uri) == artifacts.read_manifest(folder)
    found = keeper.bring(uri, tmp_path / "cache")
    assert artifacts.verify(found) == artifacts.read_manifest(folder)
    assert {name: (found / name).read_bytes() for name in artifacts.list_files(folder)} == {
        name: (folder / name).read_bytes() for name in artifacts.list_files(folder)
    }


def test_a_second_publication_sends_nothing(store, folder, keeper, tmp_path):
    store.bucket(BUCKET)
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    assert store.sent[-1].endswith(MANIFEST)  # last, so that what has a manifest is whole
    assert len(store.sent) == 4
    assert keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}") == uri
    assert len(store.sent) == 4


def test_an_interrupted_publication_sends_what_is_missing(store, folder, digest, keeper, tmp_path):
    store.bucket(BUCKET)
    store.faults.append(Fault(403, "AccessDenied", "PUT", "weights.bin"))
    with pytest.raises(UserError, match="403 AccessDenied"):
        keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    uri = f"s3://{BUCKET}/{tmp_path.name}/{digest}"
    with pytest.raises(MissingError, match=r"no manifest\.json"):
        keeper.inspect(uri)
    assert len(store.sent) == 2
    keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    assert len(set(store.sent)) == len(store.sent) == 4
    assert keeper.inspect(uri) == artifacts.read_manifest(folder)


def test_other_bytes_are_not_overwritten(prefix, folder, digest, keeper):
    there = storage.locate(prefix) / digest / "weights.bin"
    there.write(b"somebody's")
    with pytest.raises(UserError, match="other bytes lie there"):
        keeper.publish(folder, prefix)
    assert there.read() == b"somebody's"


def test_the_same_files_made_otherwise_are_refused(prefix, folder, keeper):
    keeper.publish(folder, prefix)
    seal(folder, {}, parameters={"seed": 1})
    with pytest.raises(UserError, match=r"other parameters or inputs.*[Pp]ublish to another prefix"):
        keeper.publish(folder, prefix)


@pytest.mark.parametrize("harm", ["changed", "missing"])
def test_inspection_sees_harm(harm, prefix, folder, keeper):
    uri = keeper.publish(folder, prefix)
    place = storage.locate(uri) / "weights.bin"
    if harm == "changed":
        place.write(bytes(256 * 300))  # as long as before
    else:
        place.files.rm(place.path)
    with pytest.raises(UserError, match=r"weights\.bin (was changed|is missing)"):
        keeper.inspect(uri)


def test_inspection_of_a_bucket_reads_no_weights(store, folder, keeper, tmp_path):
    store.bucket(BUCKET)
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    store.requests.clear()
    keeper.inspect(uri)
    assert store.requests["GET"] == 1  # the manifest
    assert store.requests["HEAD"] <= 1 + 3


def test_objects_of_somebody_else_are_named(store, folder, digest, keeper, tmp_path):
    store.bucket(BUCKET)
    for name in [*artifacts.list_files(folder), MANIFEST]:
        store.client.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/copied/{name}", Body=(folder / name).read_bytes())
    with pytest.raises(UserError, match=r"weights\.bin was not written by geartrain"):
        keeper.inspect(f"s3://{BUCKET}/{tmp_path.name}/copied")
    # they may be read all the same: every digest is checked
    found = keeper.bring(f"s3://{BUCKET}/{tmp_path.name}/copied", tmp_path / "cache")
    assert found.name == digest


def test_bursts_of_503_are_borne(store, folder, keeper, tmp_path, time):
    store.bucket(BUCKET)
    store.faults.append(Fault(503, "SlowDown", "PUT", times=6))
    store.faults.append(Fault(500, "InternalError", "HEAD", times=2))
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    store.faults.append(Fault(503, "ServiceUnavailable", "GET", times=5))
    keeper.bring(uri, tmp_path / "cache")
    assert time.pauses == [1.0, 2.0, *(2.0**power for power in range(6)), *(2.0**power for power in range(5))]


def test_an_outage_ends_as_trouble(store, folder, keeper, tmp_path, time):
    store.bucket(BUCKET)
    store.faults.append(Fault(503, "SlowDown", times=10**6))
    with pytest.raises(InfrastructureError, match=r"9 failures in a row.*503"):
        keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    assert 120 < sum(time.pauses) < 600


def test_no_store_at_all_is_trouble(store, folder, keeper, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(InfrastructureError, match="could not be read"):
        keeper.publish(folder, f"s3://{BUCKET}/x")


def test_sigterm_ends_the_waiting(store, folder, keeper, time):
    time.stop_after = 2
    store.faults.append(Fault(503, times=10**6))
    with pytest.raises(StoppedError):
        keeper.publish(folder, f"s3://{BUCKET}/x")


def test_a_torn_download_is_gone_on_with_and_never_looks_whole(store, folder, digest, keeper, tmp_path, small_blocks):
    store.bucket(BUCKET)
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    place, target = locate(uri), tmp_path / "cache" / digest
    read = places.Place.read_blocks

    def some(self, start, size):
        for number, block in enumerate(read(self, start, size)):
            if number == 3:
                raise UserError("the node is gone")
            yield block

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places.Place, "read_blocks", some)
        with pytest.raises(UserError, match="the node is gone"):
            keeper.fetch(place, target)
    assert not target.exists()
    part = target.with_name(f".{digest}.incoming") / ".weights.bin.part"
    assert part.stat().st_size == 30_000
    store.requests.clear()
    assert artifacts.verify(keeper.fetch(place, target)).digest == digest
    # the manifest and five blocks of eight: three were there
    assert store.requests["GET"] == 1 + 5


def test_a_broken_leftover_is_fetched_anew(store, folder, digest, keeper, tmp_path):
    store.bucket(BUCKET)
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    incoming = tmp_path / f".{digest}.incoming"
    incoming.mkdir()
    (incoming / ".weights.bin.part").write_bytes(b"rubbish")
    (incoming / "stranger").write_bytes(b"of another artifact")
    assert artifacts.verify(keeper.fetch(locate(uri), tmp_path / digest)).digest == digest
    (tmp_path / digest / "weights.bin").write_bytes(b"a disk lost it")
    assert artifacts.verify(keeper.fetch(locate(uri), tmp_path / digest)).digest == digest


def test_a_changed_object_is_refused(store, folder, digest, keeper, tmp_path):
    store.bucket(BUCKET)
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    (locate(uri) / "weights.bin").write(bytes(256 * 300))
    with pytest.raises(UserError, match=r"weights\.bin: does not match its manifest\.json"):
        keeper.bring(uri, tmp_path / "cache")
    assert not (tmp_path / "cache" / digest).exists()


@pytest.mark.parametrize("cut", [1, 3])
def test_an_answer_cut_short_is_asked_for_again(cut, store, folder, keeper, tmp_path):
    store.bucket(BUCKET)
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    store.faults.append(Fault(method="GET", path="weights.bin", times=cut, cut=True))
    assert artifacts.verify(keeper.bring(uri, tmp_path / "cache"))


def _fetch(uri, target):
    Storage(storage_clock()).fetch(locate(uri), target)


def storage_clock():
    from tests.fakes.bench import FakeTime

    return FakeTime().clock()


def test_of_several_processes_one_fetches(store, folder, digest, keeper, tmp_path):
    store.bucket(BUCKET)
    uri = keeper.publish(folder, f"s3://{BUCKET}/{tmp_path.name}")
    store.requests.clear()
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_fetch, args=(uri, tmp_path / digest)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert artifacts.verify(tmp_path / digest).digest == digest
    # a manifest for each, a read for each of two files that have bytes
    assert store.requests["GET"] == 2 + 2


@pytest.mark.parametrize("name", ["../escaped", "/etc/passwd", "a/../../b", "x?versionId=1"])
def test_a_manifest_cannot_lead_out_of_the_folder(name, folder, keeper, tmp_path):
    record = json.loads((folder / MANIFEST).read_text())
    record["files"][name] = "0" * 64
    (folder / MANIFEST).write_text(json.dumps(record))
    with pytest.raises(UserError):
        keeper.fetch(locate(str(folder)), tmp_path / "cache" / "x")
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"stage": 1}', '{"files": {"a": 1}}'])
def test_what_is_no_manifest_is_named(text, tmp_path, keeper):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(UserError, match="not a manifest"):
        keeper.manifest(str(tmp_path))


def test_a_local_artifact_is_used_where_it_is(folder, keeper, tmp_path):
    assert keeper.bring(str(folder), tmp_path / "cache") == folder
    assert not (tmp_path / "cache").exists()
    (folder / "weights.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"weights\.bin was changed"):
        keeper.bring(str(folder), tmp_path / "cache")


def test_notes_are_small_objects(prefix, keeper):
    uri = f"{prefix}/note.json"
    assert keeper.read_note(uri) is None
    for value in ({"a": 1}, {"b": "é"}):
        keeper.write_note(uri, value)
        assert keeper.read_note(uri) == value
    storage.locate(uri).write(b"[1]")
    with pytest.raises(UserError, match="is no JSON object"):
        keeper.read_note(uri)


def test_a_full_disk_is_trouble(folder, keeper, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(places.shutil, "copyfileobj", full)
    with pytest.raises(InfrastructureError, match="No space left"):
        keeper.publish(folder, str(tmp_path / "out"))
    assert list(Path(tmp_path / "out").rglob(MANIFEST)) == []


def test_what_is_said_of_a_promoted_model_goes_with_it_and_may_be_renewed(keeper, prefix, tmp_path):
    """Signatures are no part of the digest: a model that is signed anew keeps its address."""
    model = tmp_path / "promoted"
    seal(model, {"model/weights.bin": b"weights"}, stage="promotion")
    said = {"model.sig": b"{}", "provenance.json": b'{"a": 1}', "provenance.sig": b"{}", "sbom.cdx.json": b"{}"}
    for signature in (b"first", b"second"):
        said["model.sig"] = signature
        for name, text in said.items():
            (model / name).write_bytes(text)
        uri = keeper.publish(model, prefix)
        target = keeper.fetch(storage.locate(uri), tmp_path / "fetched")
        assert {name: (target / name).read_bytes() for name in said} == said
    assert artifacts.verify(target) == artifacts.verify(model)


def test_a_data_set_brings_no_attestations(keeper, folder, tmp_path):
    uri = keeper.publish(folder, str(tmp_path / "store"))
    (Path(uri) / "model.sig").write_text("who put this here?")
    assert not (keeper.fetch(storage.locate(uri), tmp_path / "fetched") / "model.sig").exists()
