"""What is made from what, as nodes and arrows: runs and versions of data, found in the index."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Node:
    """A run, or a version of a dataset, model, report or file from outside."""

    kind: Literal["run", "artifact"]
    id: str
    """Of a run its UUID, of an artifact its digest (sha256, hex)."""
    name: str
    """Of a run its stage, of an artifact what it is called."""
    digest: str = ""
    """Of an artifact."""
    job: str = ""
    """Of a run: the job's whole name."""
    type: str = ""
    """Of an artifact: "dataset", "model", "report" or "source"."""
    state: str = ""
    """Of a run: START (it has said no end), COMPLETE, FAIL or ABORT."""
    time: str = ""
    """When the run ended (or began), or the artifact was made; ISO 8601."""
    promoted: bool = False
    """Of a model: whether a gate let it through."""
    licence: str = ""
    origin: str = ""
    folder: str = ""
    error: str = ""
    """Of a run that failed: why."""
    attempt: int = 1

    @property
    def label(self) -> str:
        """What a person calls it: a name and the beginning of the digest or id."""
        return f"{self.name} {self.id[:12]}"


@dataclass(frozen=True)
class Graph:
    """What was found from one place on, nearest first; iterating gives the nodes."""

    roots: tuple[str, ...]
    """Ids of where it begins."""
    nodes: Mapping[str, Node]
    """Id -> node, the roots first."""
    arrows: tuple[tuple[str, str], ...]
    """(from, to): from what was read to the run, from the run to what it made."""
    found_by: Mapping[str, str]
    """Id -> id of the node through which it was reached on a shortest way; the roots are not in it."""

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __len__(self) -> int:
        return len(self.nodes)

    def way_to(self, node: str) -> tuple[Node, ...]:
        """Return a shortest way from a root to a node, both included."""
        way = [node]
        while way[-1] in self.found_by:
            way.append(self.found_by[way[-1]])
        return tuple(self.nodes[place] for place in reversed(way))


@dataclass(frozen=True)
class Reached:
    """A model that some data has reached, and how."""

    model: Node
    way: tuple[Node, ...]
    """From the data to the model."""
