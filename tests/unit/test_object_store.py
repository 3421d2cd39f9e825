"""The bucket that other tests talk to keeps nothing of the test before: moto's objects live as long as the process."""

from tests.fakes.object_store import ObjectStore


def test_a_store_begins_empty_whatever_another_left_behind() -> None:
    with ObjectStore() as store:
        store.client.put_object(Bucket=store.bucket("team"), Key="left/behind", Body=b"x")
        assert store.keys("team") == ["left/behind"]
    with ObjectStore() as store:
        assert not store.requests
        assert store.client.list_buckets()["Buckets"] == []
        assert store.keys(store.bucket("team")) == []
