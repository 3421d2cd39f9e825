"""What the doctor finds, line by line, and what it asks of a cluster to find it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

OK, WARN, FAIL = "ok", "warn", "fail"


class Reader(Protocol):
    """Objects of a Kubernetes API; `reading.ApiReader` is one."""

    def read(self, path: str, *, metadata_only: bool = False) -> Mapping[str, Any]:
        """Return the object or list at a path."""
        ...

    def send(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Post a question and return the answer."""
        ...


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: str
    check: str
    message: str
    mend: str = ""
    unreachable: bool = False
    """Whether it fails because nothing answered."""
