"""DVC as a command: how it is called, and what its failures mean to a person. Nothing of ours imports it.

Never the run cache: some versions of DVC take it along unless told not to, which fails on some remotes and takes hours
on large ones (iterative/dvc#10440, #10449); the data itself does not need it.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from geartrain.errors import GeartrainError, InfrastructureError, UserError

Transfer = Literal["pull", "push", "fetch"]
_BUSY = ("Unable to acquire lock", "is busy, it is being blocked by")
_NETWORK = (
    *("Could not connect", "failed to connect", "timed out", "Connection reset", "Connection refused"),
    *("Temporary failure in name resolution", "SlowDown", "ServiceUnavailable", "Connection was closed"),
)
_RIGHTS = ("Unable to locate credentials", "Access Denied", "AccessDenied", "Forbidden", "InvalidAccessKeyId")
_HINTS = (
    (_RIGHTS, "Give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_ENDPOINT_URL for a store of your own)."),
    (("unsaved files",), "Those files were changed here: keep them elsewhere, or delete them, and run it again."),
    (("no remote specified",), "Name a remote: `dvc remote add -d NAME URL`, or --remote NAME."),
    (("s3 is supported, but requires 'dvc-s3'",), "`pip install 'geartrain[pipeline]'` adds what S3 needs."),
    (("unknown Git revision",), "`git tag` lists the tags of that project; `git fetch --tags` brings those of others."),
    (("failed to pull",), "Whoever made that version has to push it: `geartrain data push`, in that clone."),
)


def transfer(
    verb: Transfer, targets: Sequence[str], *, folder: Path, remote: str | None = None, jobs: int | None = None
) -> str:
    """Move data between cache, workspace and remote; return what DVC says.

    Args:
        verb: "push" sends; "pull" fetches and puts in place; "fetch" only fetches into the cache.
        targets: paths of outputs or `.dvc` files; none: all.
        folder: the project.
        remote: name of a remote; default: the project's own.
        jobs: transfers at the same time; default: DVC's.

    Raises:
        UserError, InfrastructureError: as `call`.
    """
    return call(transfer_arguments(verb, targets, remote=remote, jobs=jobs), folder=folder)


def transfer_arguments(
    verb: Transfer, targets: Sequence[str], *, remote: str | None = None, jobs: int | None = None
) -> list[str]:
    """Return the arguments of `transfer`."""
    options = [*(["--remote", remote] if remote else []), *(["--jobs", str(jobs)] if jobs else [])]
    return [verb, "--no-run-cache", *options, "--", *targets]


def ask(arguments: Sequence[str], *places: str, folder: Path) -> Any:
    """Return what a command of DVC, with options, answers about places with `--json`. Raises as `call`."""
    return json.loads(call([*arguments, "--json", *(["--", *places] if places else [])], folder=folder) or "{}")


def call(arguments: Sequence[str], *, folder: Path) -> str:
    """Run `dvc` in a folder; return its output.

    Raises:
        InfrastructureError: another command of DVC is at work in this clone, or a remote does not answer.
        UserError: anything else that DVC refuses, with what to do where that is known.
    """
    command = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise _failure(arguments[0], done.stderr, folder)
    return done.stdout.strip()


def _failure(verb: str, text: str, folder: Path) -> GeartrainError:
    if "No module named dvc" in text:
        return UserError("DVC is not installed. `make setup` installs it; so does `pip install 'geartrain[pipeline]'`.")
    lines = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.strip()]
    told = "\n".join(line for line in lines if not line.startswith("Having any troubles?")) or "it said nothing"
    if any(sign in text for sign in _BUSY):
        return InfrastructureError(
            f"{folder.resolve()}: another command of DVC is at work in this clone, and two at once would spoil each "
            f"other's work. Wait for it to end; to work at the same time, use a clone each: they share the remote.\n"
            f"{told}"
        )
    if any(sign in text for sign in _NETWORK):
        return InfrastructureError(f"dvc {verb}: the remote does not answer; try again.\n{told}")
    hints = [hint for signs, hint in _HINTS if any(sign in text for sign in signs)]
    return UserError("\n".join([f"dvc {verb}: {told}", *hints[:1]]))
