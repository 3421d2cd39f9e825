"""Where artifacts lie: folders on a disk or in an S3 bucket, read and written by URI. The one importer of fsspec.

Keys of a bucket come from the environment or the pod's identity, as botocore finds them; an URI that carries some is
refused, since URIs are stored with runs and printed. An endpoint of another store than Amazon's is AWS_ENDPOINT_URL.

An object that we write carries its sha256 as metadata: an ETag is no digest of what was sent in parts or encrypted.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from geartrain.errors import InfrastructureError, UserError

DIGEST = "geartrain-sha256"
"""Metadata of an object: sha256 of its bytes, hex."""
BLOCK = 16 * 2**20
"""Bytes of one read."""
TOGETHER = 8
"""Reads of a bucket at the same time; with `BLOCK` they bound what a download holds in memory, and may lose."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_WEB = re.compile(r"(?:https?://|ssh://)?(?:[^@/]*@)?([A-Za-z0-9.-]+(?::\d+)?)[:/](.+?)(?:\.git)?/?")
_QUERY = re.compile(r"\?(endpoint|region|disableSSL|s3ForcePathStyle|profile)=")
_PASSING = frozenset(
    [
        *("ExpiredToken", "IncompleteBody", "InternalError", "OperationAborted", "RequestTimeout"),
        *("RequestTimeTooSkewed", "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException"),
        *("BadDigest", "ConditionalRequestConflict", "XAmzContentSHA256Mismatch"),
    ]
)
"""Codes of S3 with which the same request may succeed later, whatever their status."""
_FINAL = frozenset(["NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "InvalidRegionError"])
"""Errors of botocore's own that a person has to mend."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)


class MissingError(UserError):
    """There is nothing at this place."""


@dataclass(frozen=True)
class Found:
    """A file at a place."""

    size: int
    sha256: str | None
    """None: the store does not know, since somebody else wrote it."""


@dataclass(frozen=True)
class Place:
    """A file or folder in a store.

    Args:
        files: fsspec's file system.
        path: in its words, without a scheme.
        uri: what a person calls it.
    """

    files: Any
    path: str
    uri: str

    def __truediv__(self, name: str) -> "Place":
        _refuse_odd(name, self.uri)
        return Place(self.files, f"{self.path.rstrip('/')}/{name}", f"{self.uri.rstrip('/')}/{name}")

    @property
    def folder(self) -> Path | None:
        """The place as a folder of this machine, if it is one."""
        return Path(self.path) if "file" in _protocols(self.files) else None

    def find(self) -> Found | None:
        """Return what a file is, or None. In a bucket that costs one request; elsewhere the file is read."""
        with self._errors("read"):
            try:
                if _in_bucket(self.files):
                    bucket, key, _ = self.files.split_path(self.path)
                    head = self.files.call_s3("head_object", Bucket=bucket, Key=key)
                    return Found(head["ContentLength"], head["Metadata"].get(DIGEST))
                digest, size = hashlib.sha256(), 0
                with self.files.open(self.path, "rb") as file:
                    while block := file.read(BLOCK):
                        digest.update(block)
                        size += len(block)
            except FileNotFoundError:
                return None
        return Found(size, digest.hexdigest())

    def names(self) -> list[str]:
        """Return the names of the files in a folder, sorted; none if there is no such folder."""
        with self._errors("read"):
            try:
                listed = self.files.ls(self.path, detail=True, refresh=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(item["name"].rstrip("/").rpartition("/")[2] for item in listed if item["type"] == "file")

    def read(self) -> bytes:
        """Return the bytes of a small file. Raises MissingError."""
        with self._errors("read"):
            return bytes(self.files.cat_file(self.path))

    def read_blocks(self, start: int, size: int) -> Iterator[bytes]:
        """Yield a file's bytes from `start` on to its `size`. Raises MissingError; one cut short raises too."""
        step = BLOCK * TOGETHER
        for begin in range(start, size, step):
            starts = list(range(begin, min(begin + step, size), BLOCK))
            ends = [min(place + BLOCK, size) for place in starts]
            with self._errors("read"):
                blocks = self.files.cat_ranges([self.path] * len(starts), starts, ends, on_error="raise")
            if [len(block) for block in blocks] != [end - first for first, end in zip(starts, ends, strict=True)]:
                raise InfrastructureError(f"{self.uri}: the store sent fewer bytes than the file has")
            yield from blocks

    def write(self, data: bytes) -> None:
        """Write a small file; readers see the old one or the new one."""
        with self._errors("write"):
            if _in_bucket(self.files):
                self.files.pipe_file(self.path, data, Metadata={DIGEST: hashlib.sha256(data).hexdigest()})
                return
            with self._beside() as temporary:
                self.files.pipe_file(temporary, data)

    def upload(self, source: Path, sha256: str) -> None:
        """Write a file of any size from a local one that has this digest."""
        with self._errors("write"):
            if _in_bucket(self.files):
                # a part is 50 MiB and is held in memory until it is sent
                self.files.put_file(str(source), self.path, Metadata={DIGEST: sha256}, max_concurrency=4)
                return
            with self._beside() as temporary, source.open("rb") as here, self.files.open(temporary, "wb") as there:
                shutil.copyfileobj(here, there, BLOCK)

    @contextmanager
    def _beside(self) -> Iterator[str]:
        """Give a name in the same folder; what was written to it takes the place's own."""
        folder, _, name = self.path.rpartition("/")
        self.files.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{name}.{os.getpid()}.tmp"
        yield temporary
        if self.folder is None:
            self.files.cp_file(temporary, self.path)  # `mv` would read * and ? as patterns
            self.files.rm_file(temporary)
            return
        with Path(temporary).open("rb") as file:
            os.fsync(file.fileno())
        Path(temporary).replace(self.path)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingError(f"{self.uri}: there is no such file, folder or bucket") from error
        except Exception as error:
            found = _translate(error, f"{self.uri}: could not be {'read' if verb == 'read' else 'written'}")
            if found is None:
                raise
            raise found from error


def locate(uri: str) -> Place:
    """Return the place that an URI names: a local path, `file:///…` or `s3://bucket/key`.

    Raises:
        UserError: another scheme, an URI that carries keys, or one that names no place.
    """
    match = _SCHEME.match(uri)
    if match is None:
        path = os.path.abspath(uri)
        return Place(_local(), path, path)
    scheme, rest = match[1].lower(), uri[match.end() :]
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash or not path:
            raise UserError(f"{uri}: write file:///path/to/folder, with three slashes")
        return Place(_local(), os.path.normpath("/" + unquote(path)), uri.rstrip("/"))
    if scheme in ("s3", "s3a"):
        return _in_s3(uri, rest)
    hint = ""
    if scheme == "minio":
        hint = ". For Kubeflow's own store, write s3:// and let AWS_ENDPOINT_URL be its address"
    raise UserError(f"{scheme}://…: artifacts are read from s3://, file:// and local paths{hint}")


def web_address(remote: str) -> str:
    """Return the https address of a git remote; "" for a path of this machine."""
    match = _WEB.fullmatch(remote)
    return f"https://{match[1]}/{match[2]}" if match and "." in match[1] and not remote.startswith((".", "/")) else ""


def _in_s3(uri: str, rest: str) -> Place:
    bucket, _, key = rest.partition("/")
    if ":" in bucket or "@" in bucket:  # not shown: a secret may be in there
        raise UserError(
            "s3://…:…@…: an URI may not carry keys: it is stored with the run. Give AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY by the environment, or the pod an identity"
        )
    key = key.rstrip("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]", bucket) or not key:
        raise UserError(f"{uri}: write s3://BUCKET/KEY; a bucket's name has letters, digits and . _ -")
    _refuse_odd(key, uri)
    if _QUERY.search(key):
        raise UserError(
            f"{uri}: names a store by a query, as Kubeflow's pipeline root may. Let AWS_ENDPOINT_URL and AWS_REGION "
            "name it, and leave the query out of defaultPipelineRoot"
        )
    return Place(_bucket_store(), f"{bucket}/{key}", f"s3://{bucket}/{key}")


def _refuse_odd(name: str, uri: str) -> None:
    """Raise UserError for names that would be read as another file's."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "." in parts or "\0" in name:
        raise UserError(f"{uri}: {name!r} is not the name of a file below it")
    if "?versionId=" in name:  # s3fs would cut it off
        raise UserError(f"{uri}: {name!r}: versions of objects are not supported")


@cache
def _local() -> Any:
    import fsspec

    return fsspec.filesystem("file", auto_mkdir=True)


@cache
def _bucket_store() -> Any:
    import fsspec

    try:
        files = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise UserError("s3://…: s3fs is not installed. `pip install 'geartrain[pipeline]'` adds it") from error
    files.retries = 1  # botocore repeats a request already (AWS_MAX_ATTEMPTS), and the caller after it
    return files


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def _in_bucket(files: Any) -> bool:
    return "s3" in _protocols(files)


def _translate(error: BaseException, what: str) -> UserError | InfrastructureError | None:
    """Return the error of ours that an error of a store means, or None if it is a bug."""
    answer = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    if isinstance(answer, dict):
        code = str((answer.get("Error") or {}).get("Code", ""))
        status = int((answer.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0)
        if status >= 500 or status in (408, 409, 429) or code in _PASSING:
            return InfrastructureError(f"{what}: the store answered {status} {code}")
        if status in (401, 403):
            return UserError(
                f"{what}: the store refuses ({status} {code}). Check AWS_ACCESS_KEY_ID or the pod's identity, and that "
                "it may get, put and list there; without the right to list, what is not there is refused too"
            )
        return UserError(f"{what}: the store answered {status} {code}: {error}")
    name = type(error).__name__
    library = type(error).__module__.partition(".")[0]
    if library == "botocore" and name in _FINAL:
        return UserError(f"{what}: {error}")
    if library in ("botocore", "aiobotocore", "aiohttp") or isinstance(error, TimeoutError | ConnectionError):
        return InfrastructureError(f"{what}: {name}: {error}")
    if isinstance(error, OSError):
        passing = error.errno in _FULL or error.errno is None
        return (InfrastructureError if passing else UserError)(f"{what}: {error}")
    return None
