"""URIs: which name a place, which are refused and why; what the errors of a store mean."""

from pathlib import Path

import pytest

from geartrain.errors import InfrastructureError, UserError
from geartrain.places import MissingError, locate
from tests.fakes.object_store import Fault


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/a b/c", "/a b/c"),
        ("file:///a%20b/c%23", "/a b/c#"),
        ("file://localhost/a", "/a"),
        ("s3://bucket/a b/%20?#é//x/", "bucket/a b/%20?#é//x"),
        ("s3://a.b-c_D/key::with/colons", "a.b-c_D/key::with/colons"),
        ("S3://bucket/key", "bucket/key"),
    ],
)
def test_an_uri_names_a_place(uri, path, store):
    assert locate(uri).path == path


def test_a_relative_path_is_as_seen_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate("models/policy").uri == str(tmp_path / "models/policy")


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("gs://bucket/key", r"^gs://…: artifacts are read from s3://, file:// and local paths$"),
        ("minio://mlpipeline/v2/x", "write s3:// and let AWS_ENDPOINT_URL be its address"),
        ("https://example.org/x", "^https://…"),
        ("memory://x", "^memory://…"),
        ("file://host/x", "three slashes"),
        ("file://", "three slashes"),
        ("s3://bucket", "write s3://BUCKET/KEY"),
        ("s3:///key", "write s3://BUCKET/KEY"),
        ("s3://bu cket/key", "write s3://BUCKET/KEY"),
        ("s3://bucket/a/../b", "not the name of a file"),
        ("s3://bucket/a?versionId=7", "versions of objects"),
        ("s3://bucket/a?region=x&endpoint=y/b", "names a store by a query"),
    ],
)
def test_others_are_refused(uri, reason):
    with pytest.raises(UserError, match=reason):
        locate(uri)


@pytest.mark.parametrize("uri", ["s3://AKIAX:s3cr3t@bucket/key", "s3://AKIAX:s3/cr3t@bucket/key"])
def test_keys_in_an_uri_are_refused_and_not_repeated(uri):
    with pytest.raises(UserError, match="may not carry keys") as caught:
        locate(uri)
    assert "cr3t" not in str(caught.value)
    assert "AKIAX" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", InfrastructureError),
        (503, "ServiceUnavailable", InfrastructureError),
        (500, "InternalError", InfrastructureError),
        (504, "GatewayTimeout", InfrastructureError),
        (429, "TooManyRequests", InfrastructureError),
        (409, "OperationAborted", InfrastructureError),
        (400, "RequestTimeout", InfrastructureError),
        (400, "ExpiredToken", InfrastructureError),
        (403, "RequestTimeTooSkewed", InfrastructureError),
        (400, "BadDigest", InfrastructureError),
        (403, "AccessDenied", UserError),
        (403, "InvalidAccessKeyId", UserError),
        (403, "SignatureDoesNotMatch", UserError),
        (400, "InvalidArgument", UserError),
        (404, "NoSuchBucket", MissingError),
    ],
)
def test_an_answer_of_the_store_becomes_an_error_of_ours(status, code, kind, store):
    store.faults.append(Fault(status, code))
    with pytest.raises(kind) as caught:
        locate("s3://bucket/key").write(b"x")
    assert type(caught.value) is kind
    assert str(caught.value).startswith("s3://bucket/key: ")


def test_without_keys_nothing_is_sent(store, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(UserError, match="Unable to locate credentials"):
        locate("s3://bucket/key").read()
    assert store.requests.total() == 0


def test_no_key_is_in_an_error(store, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame-open")
    store.faults.append(Fault(403, "SignatureDoesNotMatch"))
    with pytest.raises(UserError, match="403") as caught:
        locate("s3://bucket/key").read()
    assert "sesame" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_named(store):
    with pytest.raises(MissingError, match=r"s3://no-such-bucket/key: there is no such file, folder or bucket"):
        locate("s3://no-such-bucket/key").write(b"x")
    assert locate("s3://no-such-bucket/key").find() is None


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    place = locate(str(tmp_path / "a/b"))
    place.write(b"old")

    def torn():
        with place._errors("write"), place._beside() as temporary:
            Path(temporary).write_bytes(b"ne")
            raise PermissionError(13, "taken away")

    with pytest.raises(UserError, match="taken away"):
        torn()
    assert place.read() == b"old"


def test_a_large_file_goes_in_parts_and_keeps_its_digest(store, tmp_path):
    store.bucket("parts")
    (tmp_path / "large").write_bytes(bytes(101 * 2**20))
    place = locate("s3://parts/large")
    place.upload(tmp_path / "large", "d" * 64)
    found = place.find()
    assert (found.size, found.sha256) == (101 * 2**20, "d" * 64)
    assert store.client.head_object(Bucket="parts", Key="large")["ETag"].endswith('-3"')
    assert sum(map(len, place.read_blocks(10, found.size))) == found.size - 10
