"""Artifacts are sealed, checked and published whole."""

import json
from pathlib import Path

import pytest

from geartrain import artifacts
from geartrain.errors import UserError


def seal(folder: Path, **files: str) -> artifacts.Manifest:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return artifacts.write_manifest(folder, stage="s", parameters={"a": 1}, inputs={}, metrics={"m": 0.5})


def test_the_digest_depends_on_contents_alone(tmp_path: Path) -> None:
    first = seal(tmp_path / "one", a="x", b="y")
    second = seal(tmp_path / "two", b="y", a="x")
    third = seal(tmp_path / "three", a="x", b="z")
    assert first.digest == second.digest != third.digest


def test_verify_returns_what_was_written(tmp_path: Path) -> None:
    written = seal(tmp_path / "one", a="x")
    assert artifacts.verify(tmp_path / "one") == written


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "a").write_text("other"), "a was changed"),
        (lambda folder: (folder / "a").unlink(), "a is missing"),
        (lambda folder: (folder / "c").write_text(""), "c is not in the manifest"),
        (lambda folder: (folder / "manifest.json").unlink(), "not a finished artifact"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "not a manifest"),
        (lambda folder: (folder / "manifest.json").write_text('{"stage": "s"}'), "not a manifest"),
        (lambda folder: (folder / "manifest.json").write_text("null"), "not a manifest"),
        (lambda folder: (folder / "manifest.json").write_text("[" * 3000), "not a manifest"),
        (
            lambda folder: (folder / "manifest.json").write_text(
                '{"stage":1,"files":[],"parameters":[],"inputs":[],"code":1,"metrics":1}'
            ),
            r"not a manifest \(stage is int\)",
        ),
    ],
)
def test_harm_is_found(tmp_path: Path, harm: object, said: str) -> None:
    seal(tmp_path / "one", a="x")
    harm(tmp_path / "one")  # type: ignore[operator]
    with pytest.raises(UserError, match=said):
        artifacts.verify(tmp_path / "one")


def test_publish_replaces_the_old_artifact_whole(tmp_path: Path) -> None:
    seal(tmp_path / "old", a="1", gone="1")
    new = seal(tmp_path / "new", a="2")
    artifacts.publish(tmp_path / "old", tmp_path / "target")
    artifacts.publish(tmp_path / "new", tmp_path / "target")
    assert artifacts.verify(tmp_path / "target") == new
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "target"]


def test_publish_clears_what_a_killed_publish_left(tmp_path: Path) -> None:
    new = seal(tmp_path / "new", a="2")
    (tmp_path / ".target.incoming").mkdir()
    (tmp_path / ".target.incoming" / "half").write_text("")
    artifacts.publish(tmp_path / "new", tmp_path / "target")
    assert artifacts.verify(tmp_path / "target") == new


def test_json_refuses_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        artifacts.write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_json_ends_with_a_newline_and_sorts(tmp_path: Path) -> None:
    artifacts.write_json(tmp_path / "x.json", {"b": 1, "a": "é"})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n  "a": "é",\n  "b": 1\n}\n'
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": "é", "b": 1}
