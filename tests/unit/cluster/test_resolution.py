import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from geartrain import withdrawals
from geartrain.artifacts import file_sha256, fingerprint
from geartrain.cluster.resolution import dataset_digest, image_digest
from geartrain.config import Config, parse_config
from geartrain.config_file import read_yaml
from geartrain.errors import UserError

NOTHING = "sha256:" + fingerprint({})
IMPORT = """\
frozen: true
deps:
- path: chinook.json
  repo: {{url: ../registry, rev: v3, rev_lock: {commit}}}
outs:
- md5: {md5}
  size: 3
  hash: md5
  path: raw.json
"""
COMMIT = "4f0b6d1c9d5f4f1b8a3e0c7d2b6a9e8f7c6d5e4b"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.json").write_text("[]\n")
    return parse_config({"environment": {"source": "raw.json"}}, source="test")


def imported(md5: str | None = None) -> None:
    made = hashlib.md5(Path("raw.json").read_bytes(), usedforsecurity=False).hexdigest()
    Path("raw.json.dvc").write_text(IMPORT.format(commit=COMMIT, md5=md5 or made))


def test_digest_is_that_of_the_bytes_wherever_they_lie(config: Config, tmp_path: Path) -> None:
    digest = dataset_digest(config, "")
    assert digest == "sha256:" + fingerprint({"environment.source": file_sha256(tmp_path / "raw.json")})
    Path("other.json").write_text("[]\n")
    moved = parse_config({"environment": {"source": "other.json"}}, source="test")
    assert dataset_digest(moved, "") == digest
    Path("raw.json").write_text("[1]\n")
    assert dataset_digest(config, "") != digest


def test_everything_from_outside_counts(config: Config, tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder/config.json").write_text("{}")
    more = {"environment": {"source": "raw.json"}, "reward_model": {"encoder": "encoder"}}
    whole = parse_config(more, source="test")
    digest = dataset_digest(whole, "")
    assert digest != dataset_digest(config, "")
    (tmp_path / "encoder/weights").write_text("1")
    assert dataset_digest(whole, "") != digest


def test_data_made_by_the_code_itself_has_the_digest_of_nothing() -> None:
    assert dataset_digest(parse_config({"environment": {"name": "twophase"}}, source="test"), "") == NOTHING


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"environment\.source: no such file: data/raw/chinook\.json"):
        dataset_digest(Config(), "")


def test_a_digest_may_be_demanded(config: Config) -> None:
    digest = dataset_digest(config, "")
    assert dataset_digest(config, digest) == digest
    with pytest.raises(UserError, match=r"what is here is sha256:"):
        dataset_digest(config, NOTHING)


@pytest.mark.parametrize("revision", ["v3", COMMIT, COMMIT[:7], ""])
def test_a_revision_of_an_import_is_checked(revision: str, config: Config) -> None:
    imported()
    assert dataset_digest(config, revision) == dataset_digest(config, "")


@pytest.mark.parametrize("revision", ["v4", COMMIT[:4], "main"])
def test_another_revision_is_refused(revision: str, config: Config) -> None:
    imported()
    with pytest.raises(UserError, match=rf"raw\.json is v3 = {COMMIT}"):
        dataset_digest(config, revision)


def test_an_import_whose_bytes_were_changed_is_refused(config: Config) -> None:
    imported(md5="0" * 32)
    with pytest.raises(UserError, match="dvc pull"):
        dataset_digest(config, "")


def test_a_pointer_that_is_no_import_is_refused(config: Config) -> None:
    Path("raw.json.dvc").write_text("outs:\n- md5: 0\n  path: raw.json\n")
    with pytest.raises(UserError, match="no import of one file or folder"):
        dataset_digest(config, "")


def test_a_revision_without_an_import_is_refused(config: Config) -> None:
    with pytest.raises(UserError, match=r"'v3': the data is no DVC import"):
        dataset_digest(config, "v3")
    made = parse_config({"environment": {"name": "twophase"}}, source="test")
    with pytest.raises(UserError, match="nothing is read from outside"):
        dataset_digest(made, "v3")


def test_an_image_is_its_digest_or_what_is_in_it() -> None:
    digest = "sha256:" + "a" * 64
    assert image_digest(f"registry.example.org/geartrain@{digest}") == digest
    inside = image_digest("geartrain/python:dev")
    assert inside.startswith("content:")
    assert inside == image_digest("geartrain/python:other") == image_digest("a@sha256:short")


def test_what_is_withdrawn_is_refused_before_anything_is_computed(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stones = tmp_path / "withdrawn"
    stones.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, str(stones))
    digest = file_sha256(tmp_path / "raw.json")
    withdrawals.record(stones, digest, "withdraw", name="raw", reason="asked for", by="ada", at="2026-03-01")
    with pytest.raises(UserError, match=r"environment\.source \(.{12}\) was withdrawn on 2026-03-01 by ada: asked for"):
        dataset_digest(config, "")


def test_a_folder_is_held_to_its_import_as_dvc_would_do(config: Config, tmp_path: Path) -> None:
    for name in ("config.json", "a/b", "a-b", "a.b", "A/c", "ä"):
        path = tmp_path / "encoder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for command in (["init", "-q", "--no-scm"], ["add", "-q", "encoder"]):
        subprocess.run([sys.executable, "-m", "dvc", *command], check=True)
    made = read_yaml(Path("encoder.dvc").read_text(), source="test")["outs"][0]["md5"]
    assert made.endswith(".dir")
    Path("encoder.dvc").write_text(IMPORT.format(commit=COMMIT, md5=made))
    whole = parse_config({"environment": {"source": "raw.json"}, "critic": {"encoder": "encoder"}}, source="test")
    dataset_digest(whole, "")
    (tmp_path / "encoder/a/b").write_text("changed")
    with pytest.raises(UserError, match=r"encoder: md5 .*\.dir is not that of encoder\.dvc"):
        dataset_digest(whole, "")
