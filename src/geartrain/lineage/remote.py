"""What lies in the DVC remote, held against the lineage: read from DVC's own files, without DVC.

An md5 names an object there, and proves nothing. So each object is hashed anew, and the artifact that comes out is
compared with its manifest by sha256.
"""

import configparser
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from geartrain.artifacts import ATTESTATIONS, MANIFEST, fingerprint
from geartrain.errors import UserError
from geartrain.lineage import evidence
from geartrain.lineage.index import Index
from geartrain.lineage.verification import Checked, Finding
from geartrain.places import MissingError, Place, locate


def check_remote(workspace: Path, folders: Mapping[str, Path], index: Index) -> Checked:
    """Check what `dvc.lock` names in the default remote of a workspace.

    Args:
        workspace: holds `dvc.lock` and `.dvc/config`; without either there is nothing to check.
        folders: stage -> folder of its artifact.
        index: of the lineage.

    Raises:
        UserError: the remote's address is of a kind that is not read, or nobody may look.
        InfrastructureError: the store did not answer.
    """
    remote, outputs = _remote(workspace), _outputs(workspace)
    findings: list[Finding] = []
    looked = 0
    for folder in map(Path.as_posix, folders.values()):
        if remote is None or folder not in outputs:
            continue
        where = f"{folder} in the DVC remote"
        listed = _object(remote, outputs[folder])
        if listed is None:
            findings.append(Finding(where, "is not there: `dvc push` copies it", fault=False))
            continue
        looked += 1
        text, _ = listed
        if hashlib.md5(text, usedforsecurity=False).hexdigest() != outputs[folder].removesuffix(".dir"):
            findings.append(Finding(where, f"the list of its files ({outputs[folder]}) was changed"))
            continue
        findings += [Finding(where, what, fault) for what, fault in _compare(remote, json.loads(text), index)]
    return Checked({"artifacts in the DVC remote": looked}, tuple(findings), {})


def _compare(remote: Place, listed: list[dict[str, str]], index: Index) -> list[tuple[str, bool]]:
    """Return (what is wrong, whether it is a fault) of one artifact, given the list of its files."""
    wrong: list[tuple[str, bool]] = []
    sums: dict[str, str] = {}
    manifest: dict[str, Any] = {}
    told = ""
    for item in listed:
        found = _object(remote, item["md5"])
        if found is None:
            wrong.append((f"{item['relpath']} is not there: `dvc push` copies it", False))
            continue
        content, sha256 = found
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != item["md5"]:
            wrong.append((f"{item['relpath']} was changed (object {item['md5']})", True))
        elif item["relpath"] == MANIFEST:
            manifest, told = json.loads(content), sha256
        elif item["relpath"] not in ATTESTATIONS:
            sums[item["relpath"]] = sha256
    if wrong:
        return wrong
    if manifest.get("files") != sums:
        return [("its files are not those of its manifest", True)]
    digest = fingerprint(sums)
    known = evidence.manifests(index, digest)
    if not known:
        return [(f"no run in this lineage made it ({digest[:12]})", True)]
    return [] if known & {"", told} else [(f"{MANIFEST} is not the one that its run wrote", True)]


def _object(remote: Place, md5: str) -> tuple[bytes, str] | None:
    """Return an object's bytes and their sha256; None if it is not there."""
    try:
        content = (remote / f"files/md5/{md5[:2]}/{md5[2:]}").read()
    except MissingError:
        return None
    return content, hashlib.sha256(content).hexdigest()


def _remote(workspace: Path) -> Place | None:
    """Return the default remote of a workspace."""
    settings = configparser.ConfigParser(interpolation=None)
    try:
        settings.read([workspace / ".dvc/config", workspace / ".dvc/config.local"], encoding="utf-8")
        name = settings.get("core", "remote", fallback="")
        url = settings.get(f"'remote \"{name}\"'", "url", fallback="")
    except configparser.Error as error:
        raise UserError(f"{workspace / '.dvc/config'}: cannot be read ({error}).") from error
    if not url:
        return None
    return locate(url if "://" in url else str((workspace / ".dvc" / url).resolve()))


def _outputs(workspace: Path) -> dict[str, str]:
    """Return folder -> name of its object, as `dvc.lock` has it."""
    path = workspace / "dvc.lock"
    if not path.is_file():
        return {}
    stages = (yaml.safe_load(path.read_text("utf-8")) or {}).get("stages") or {}
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs") or () if "md5" in out}
