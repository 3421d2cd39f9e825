"""A run pinned to data: named once by whoever sends it, fetched by content in a step that has neither git nor DVC."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from geartrain import artifacts, places, withdrawals
from geartrain.cluster.node import check_request
from geartrain.cluster.pinned import Pin, bring, furnished, parse_pins, require_there, stoppable
from geartrain.cluster.pinning import pin
from geartrain.cluster.resolution import dataset_digest
from geartrain.cluster.section import Request
from geartrain.cluster.stage_job import make_request
from geartrain.cluster.step import run_step
from geartrain.cluster.storage import Storage
from geartrain.config import Config, parse_config
from geartrain.errors import InfrastructureError, UserError
from geartrain.lineage.events import read_events
from geartrain.stages.stage import Job, StageSpec, _run
from tests.fakes.dvc_projects import shell, start
from tests.fakes.object_store import ObjectStore

CONFIG = {"environment": {"source": "data/raw.json"}, "reward_model": {"encoder": "encoder"}}
SOURCE, ENCODER = "environment.source", "reward_model.encoder"


@pytest.fixture
def config() -> Config:
    return parse_config(CONFIG, source="test")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Path:
    """A registry with a file and a folder in two versions and its remote, in a project of whoever sends the run."""
    place = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        project = start(place / "team", "../remote", git=True)
        shell(project, "git remote add origin https://ada:secret@git.example.org/team/registry.git")
        for version in ("v1", "v2"):
            (project / "raw.json").write_text(f'["{version}"]\n')
            for name in ("config.json", "deep/weights.bin"):
                (project / "encoder" / name).parent.mkdir(parents=True, exist_ok=True)
                (project / "encoder" / name).write_text(f'{{"of": "{version}"}}')
            shell(project, "dvc add -q raw.json encoder", "git add -A", f"git commit -qm {version}")
            shell(project, f"git tag {version}", "dvc push -q --no-run-cache")
        shell(place, "dvc init -q --no-scm")
    return place


@pytest.fixture
def team(place: Path, tmp_path: Path) -> Path:
    """A copy of it all; the registry."""
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    return tmp_path / "team"


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "work"))


@pytest.fixture(scope="session")
def asked(place: Path, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pin]:
    """What DVC and git say of each version, asked once: a command of theirs takes most of a second."""
    config = parse_config(CONFIG, source="test")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**variables, "GEARTRAIN_HOME": str(tmp_path_factory.mktemp("asked"))}.items():
            patch.setenv(name, value)
        patch.chdir(place)
        names = [f"{key}={name}" for key, name in ((SOURCE, "raw.json"), (ENCODER, "encoder"))]
        return {
            f"{name}@{tag}": one
            for name in names
            for tag in ("v1", "v2")
            for one in sent(config, place / "team", f"{name}@{tag}").values()
        }


@pytest.fixture
def pins(team: Path, place: Path, asked: dict[str, Pin]) -> dict[str, Pin]:
    """Version -> its pin in this test's copy."""
    moved = {"uri": lambda one: one.uri.replace(str(place), str(team.parent))}
    return {name: one.model_copy(update={"uri": moved["uri"](one)}) for name, one in asked.items()}


def choose(pins: dict[str, Pin], *names: str) -> dict[str, Pin]:
    return {name.partition("=")[0]: pins[name] for name in names}


RAW1, RAW2 = f"{SOURCE}=raw.json@v1", f"{SOURCE}=raw.json@v2"
SMALL1, SMALL2 = f"{ENCODER}=encoder@v1", f"{ENCODER}=encoder@v2"


def sent(config: Config, team: Path, *wanted: str, for_pods: bool = False) -> dict[str, Pin]:
    return pin(config, wanted, project=str(team), for_pods=for_pods)


def in_a_pod(config: Config, pins: dict[str, Pin], *keys: str) -> dict[str, str]:
    """What a step of another machine reads."""
    shutil.rmtree("work", ignore_errors=True)
    with furnished(config, keys, pins):
        found = [Path("data/raw.json"), *Path("encoder").rglob("*")]
        return {path.as_posix(): path.read_text() for path in found if path.is_file()}


def test_a_file_and_a_folder_are_what_the_tag_meant_when_the_run_was_sent(
    config: Config, team: Path, tmp_path: Path
) -> None:
    pins = sent(config, team, f"{SOURCE}=raw.json@v1", f"{ENCODER}=encoder@v1")
    shell(team, "git tag -f v1 v2")  # the tag moves
    told = json.loads(json.dumps({key: one.model_dump() for key, one in pins.items()}))  # a parameter of Kubeflow
    shutil.rmtree(team)  # no git, no cache: the remote is all that there is
    read = in_a_pod(config, parse_pins(told), SOURCE, ENCODER)
    weights = {"encoder/deep/weights.bin": '{"of": "v1"}'}
    assert read == {"data/raw.json": '["v1"]\n', "encoder/config.json": '{"of": "v1"}', **weights}
    assert Path.cwd() == tmp_path
    assert pins[SOURCE].sha256 == hashlib.sha256(b'["v1"]\n').hexdigest()
    assert (pins[SOURCE].revision, len(pins[SOURCE].commit)) == ("v1", 40)
    assert "secret" not in json.dumps(told)
    assert str(tmp_path / "team") not in json.dumps(told)


def test_a_step_reads_what_it_declares_and_leaves_the_rest(
    config: Config, pins: dict[str, Pin], tmp_path: Path
) -> None:
    pins = choose(pins, RAW1, SMALL2)
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder/config.json").write_text("of the image")
    assert in_a_pod(config, pins, SOURCE) == {"data/raw.json": '["v1"]\n'}
    assert in_a_pod(config, {SOURCE: pins[SOURCE]}, SOURCE, ENCODER)["encoder/config.json"] == "of the image"
    with furnished(config, ("critic.encoder",), pins):
        assert Path.cwd() == tmp_path  # nothing of it is pinned


def test_the_first_step_finds_the_digest_without_the_data(
    config: Config, pins: dict[str, Pin], team: Path, tmp_path: Path
) -> None:
    pins = choose(pins, RAW2, SMALL2)
    digest = dataset_digest(config, "", pins)
    assert digest == dataset_digest(config, "v2", pins) == dataset_digest(config, pins[SOURCE].commit[:8], pins)
    with pytest.raises(UserError, match="is v2 = "):
        dataset_digest(config, "v1", pins)
    require_there(pins)
    (tmp_path / "data").mkdir()
    shutil.copy(team / "raw.json", tmp_path / "data/raw.json")
    shutil.copytree(team / "encoder", tmp_path / "encoder")
    assert dataset_digest(config, "") == digest, "the same data, wherever it is from"
    shutil.rmtree(tmp_path / "remote")
    with pytest.raises(UserError, match=r"environment\.source: .* is not there any more"):
        require_there(pins)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ([f"{SOURCE}=raw.json@v9"], "v9"),
        ([f"{SOURCE}=picture@v1"], "no data set or model 'picture'"),
        ([f"{SOURCE}=encoder@v1"], "encoder@v1: is no file, which environment.source needs"),
        ([f"{ENCODER}=raw.json@v1"], "raw.json@v1: is no folder of an encoder"),
        (["model.path=encoder@v1"], "name no file under 'model.path'"),
        (["policy.siblings=raw.json@v1"], "name no file under 'policy.siblings'"),
        ([SOURCE], "expected KEY=NAME@REV"),
        ([f"{SOURCE}=raw.json@v1", f"{SOURCE}=raw.json@v2"], "is given twice"),
        (["@nowhere.json"], "no pins"),
    ],
)
def test_what_cannot_be_pinned_is_named(wanted: list[str], said: str, config: Config, team: Path) -> None:
    with pytest.raises(UserError, match=said):
        sent(config, team, *wanted)
    assert list(Path("work").rglob("*")) in ([], [Path("work/pinned")])


@pytest.mark.parametrize("path", ["/data/raw.json", "../raw.json"])
def test_a_path_outside_of_the_project_is_not_taken(path: str, team: Path) -> None:
    outside = parse_config({"environment": {"source": path}}, source="test")
    with pytest.raises(UserError, match="takes a path below the project"):
        sent(outside, team, f"{SOURCE}=raw.json@v1")


def test_pods_cannot_read_a_folder_of_this_machine(config: Config, team: Path) -> None:
    with pytest.raises(UserError, match=r"a folder of this machine, .*dvc remote add"):
        sent(config, team, f"{SOURCE}=raw.json@v1", for_pods=True)


def test_pins_of_a_file_are_taken_as_they_are(config: Config, pins: dict[str, Pin], tmp_path: Path) -> None:
    pins = choose(pins, RAW1)
    (tmp_path / "pins.json").write_text(json.dumps({key: one.model_dump() for key, one in pins.items()}))
    assert pin(config, ["@pins.json"], project=None, for_pods=True) == pins
    (tmp_path / "pins.json").write_text(json.dumps({SOURCE: {"path": "raw.json", "digest": "?"}}))
    with pytest.raises(UserError, match=r"data\[environment\.source\]: .* problem"):
        pin(config, ["@pins.json"], project=None, for_pods=True)


def test_data_that_no_commit_holds_says_so(config: Config, team: Path) -> None:
    assert len(sent(config, team, f"{SOURCE}=raw.json")[SOURCE].commit) == 40
    (team / "raw.json").write_text('["v3"]\n')
    shell(team, "dvc add -q raw.json", "dvc push -q --no-run-cache")
    made = sent(config, team, f"{SOURCE}=raw.json")[SOURCE]
    assert made.sha256 == hashlib.sha256(b'["v3"]\n').hexdigest()
    assert (made.revision, made.commit) == ("", "")


def test_what_nobody_pushed_is_found_out_before_a_pod_waits(config: Config, team: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "remote")
    with pytest.raises(UserError, match="has to push it"):
        sent(config, team, f"{SOURCE}=raw.json@v1")


def objects(tmp_path: Path, pin: Pin) -> Path:
    return tmp_path / "remote/files/md5" / pin.md5[:2] / pin.md5[2:]


def change(path: Path, text: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(text)


def test_wrong_bytes_under_the_right_name_are_refused(
    config: Config, pins: dict[str, Pin], team: Path, tmp_path: Path
) -> None:
    pins = choose(pins, RAW1, SMALL1)
    for key in pins:
        change(objects(tmp_path, pins[key]), b"[]")
        with pytest.raises(UserError, match="has other bytes than its name says"):
            in_a_pod(config, pins, key)
    with pytest.raises(UserError, match="has other bytes than its name says"):
        sent(config, team, RAW1)
    assert [path.name for path in tmp_path.glob("work/pinned/*")] == []


def test_bytes_with_the_same_md5_are_refused_too(config: Config, pins: dict[str, Pin]) -> None:
    # what a collision would look like: DVC's name fits, the sha256 that was seen does not
    evil = pins[RAW1].model_copy(update={"sha256": "0" * 64})
    with pytest.raises(UserError, match=r"sha256 .* not 0{64} as when the run was sent"):
        in_a_pod(config, {SOURCE: evil}, SOURCE)


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..", "", "a//..//b", "x\0y"])
def test_a_list_that_leads_out_of_the_folder_is_refused(name: str, tmp_path: Path, config: Config) -> None:
    body = tmp_path / "remote/aa/bb"
    listed = json.dumps([{"md5": hashlib.md5(b"x").hexdigest(), "relpath": name}]).encode()
    digest = hashlib.md5(listed).hexdigest()
    place = tmp_path / "remote" / digest[:2] / f"{digest[2:]}.dir"
    for path, text in ((body, b"x"), (place, listed)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    evil = Pin(path="encoder", md5=f"{digest}.dir", uri=str(place), sha256="0" * 64)
    with pytest.raises(UserError, match=r"is not the name of a file below it|is no list"):
        in_a_pod(config, {ENCODER: evil}, ENCODER)
    assert not list(tmp_path.rglob("*evil*"))


def test_a_copy_that_was_changed_here_is_fetched_again(pins: dict[str, Pin], tmp_path: Path) -> None:
    with stoppable() as clock:
        copy = bring(pins[RAW1], Storage(clock), tmp_path / "kept")
        copy.write_text("changed")
        assert bring(pins[RAW1], Storage(clock), tmp_path / "kept").read_text() == '["v1"]\n'


def test_what_is_withdrawn_is_not_sent(
    config: Config, pins: dict[str, Pin], team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = choose(pins, RAW1)
    monkeypatch.setenv(withdrawals.PLACES, str(tmp_path / "stones"))
    (tmp_path / "stones").mkdir()
    withdrawals.record(tmp_path / "stones", made[SOURCE].sha256, "withdraw", name="r", reason="why", by="a", at="2026")
    with pytest.raises(UserError, match="withdrawn on 2026 by a: why"):
        sent(config, team, f"{SOURCE}=raw.json@v1")
    with pytest.raises(UserError, match="withdrawn on 2026 by a: why"):
        dataset_digest(config, "", choose(pins, RAW1, SMALL1))


class Numbers(dict[str, float]):
    def log_metric(self, name: str, value: float) -> None:
        self[name] = value


def stage(job: Job) -> dict[str, Any]:
    artifacts.write_json(job.outputs["tasks"] / "made.json", job.config.environment.source.read_text())
    return {"rows": 1}


def run(config: Config, inputs: Any, outputs: Any) -> dict[str, Any]:
    ranks = SimpleNamespace(size=1, leads=True, gather=lambda value: [value], first=lambda value: value)
    return _run(run.spec, stage, config, inputs, outputs, ranks)  # type: ignore[attr-defined]


run.spec = StageSpec("tasks", (), ("environment",), run, (SOURCE,))  # type: ignore[attr-defined]


@pytest.mark.parametrize("address", [True, False])
def test_lineage_and_manifest_say_where_a_step_has_its_data_from(
    address: bool, pins: dict[str, Pin], tmp_path: Path
) -> None:
    made = pins[RAW1]
    if not address:
        made = made.model_copy(update={"repository": "", "uri": f"file://{made.uri}"})
    output = SimpleNamespace(uri="s3://b/tasks", path="made", metadata={})
    record = {"seed": 3, "threads": 1, "environment": CONFIG["environment"]}
    run_step(run, record, {}, output, Numbers(), {}, data={SOURCE: made.model_dump()})
    manifest = artifacts.verify(tmp_path / "made")
    assert json.loads((tmp_path / "made/made.json").read_text()) == '["v1"]\n'
    assert manifest.inputs == {SOURCE: made.sha256}
    assert manifest.parameters["environment"]["source"] == "data/raw.json", "as on any other machine"
    (told,) = read_events(tmp_path / "work/lineage")[0]["inputs"]
    origin = f"git+https://git.example.org/team/registry@{made.commit}#raw.json" if address else made.uri
    assert origin in json.dumps(told)
    assert "secret" not in json.dumps(told)


def test_a_training_job_is_told_the_pins_that_its_stage_reads(pins: dict[str, Pin]) -> None:
    pins = choose(pins, RAW1, SMALL1)
    data = {key: one.model_dump() for key, one in pins.items()}
    record = {"seed": 0, "threads": 1, "reward_model": CONFIG["reward_model"]}
    ask = ("reward_model", record, {"preferences": "s3://bucket/p"}, "s3://bucket/out", "run")
    request = make_request(*ask, data)
    assert set(request.data) == {ENCODER}
    assert request.result != make_request(*ask).result, "other data is other work"
    assert make_request(*ask, {SOURCE: data[SOURCE]}) == make_request(*ask)
    check_request(request, 1, source="test")
    wrong = Request(**{**request.model_dump(), "record": {**record, "reward_model": {}}})
    with pytest.raises(UserError, match=r"name no file under 'reward_model\.encoder'"):
        check_request(wrong, 1, source="test")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        store.bucket("team")
        places._bucket_store.cache_clear()
        yield store
        places._bucket_store.cache_clear()


def test_from_s3_by_configuration_alone(store: ObjectStore, config: Config, team: Path, tmp_path: Path) -> None:
    shell(team, "dvc remote add -q --force here s3://team/registry", "git commit -qam remote", "git tag v3")
    shell(team, "dvc push -q --no-run-cache")
    pins = sent(config, team, f"{SOURCE}=raw.json@v3", f"{ENCODER}=encoder@v3", for_pods=True)
    assert pins[SOURCE].uri.startswith("s3://team/registry/files/md5/")
    shutil.rmtree(tmp_path / "remote")
    shutil.rmtree(team)
    assert in_a_pod(config, pins, SOURCE, ENCODER)["encoder/deep/weights.bin"] == '{"of": "v2"}'
    store.client.delete_object(Bucket="team", Key=pins[SOURCE].uri.removeprefix("s3://team/"))
    with pytest.raises(UserError, match="has to push it"):
        in_a_pod(config, pins, SOURCE)


def test_a_store_that_does_not_answer_may_answer_later(
    store: ObjectStore, config: Config, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell(team, "dvc remote add -q --force here s3://team/registry", "git commit -qam remote", "git tag v3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("geartrain.cluster.storage.ERRORS", 0)
    with pytest.raises(InfrastructureError):
        sent(config, team, f"{SOURCE}=raw.json@v3", for_pods=True)
