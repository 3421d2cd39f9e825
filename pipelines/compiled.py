"""A compiled pipeline, read back: its tasks one by one, with all that Kubeflow is told about each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from geartrain.errors import UserError

Document = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One task, however deep; a task that is a DAG is followed by those inside it."""

    name: str
    body: Document
    """How its parent calls it: inputs, caching, retries, iterator, condition."""
    component: Document
    executor: Document
    """What runs: a container or an importer; empty for a DAG."""
    platform: Document
    """What kfp-kubernetes says of its pod."""
    above: tuple["Task", ...]
    guarded: bool
    """Whether it is, or is below, the part of a pipeline that an exit handler guards."""

    @property
    def is_dag(self) -> bool:
        """Whether other tasks are inside it."""
        return "dag" in self.component

    @property
    def container(self) -> Document:
        """Image, command, variables and resources; empty if it runs none."""
        found: Document = self.executor.get("container", {})
        return found

    @property
    def cached(self) -> bool:
        """Whether Kubeflow may take its outputs from an earlier run."""
        return bool(self.body.get("cachingOptions", {}).get("enableCache")) and not self.is_dag

    @property
    def iterates(self) -> bool:
        """Whether it is a loop."""
        return bool({"parameterIterator", "artifactIterator"} & self.body.keys())

    @property
    def is_exit(self) -> bool:
        """Whether it is the exit task of a handler."""
        return any("taskFinalStatus" in source for source in self.parameters.values())

    @property
    def parameters(self) -> Document:
        """Parameter -> where its value is from."""
        found: Document = self.body.get("inputs", {}).get("parameters", {})
        return found

    @property
    def constants(self) -> dict[str, Any]:
        """Parameters whose value is written in the pipeline."""
        given = {name: source.get("runtimeValue", {}) for name, source in self.parameters.items()}
        return {name: value["constant"] for name, value in given.items() if "constant" in value}


@dataclass(frozen=True)
class Compiled:
    """A compiled pipeline: both documents, its size, its tasks."""

    spec: Document
    platform: Document
    size: int
    """Bytes of the file."""
    tasks: tuple[Task, ...] = field(default=())

    @property
    def parameters(self) -> Document:
        """Parameters of the pipeline: type and default value of each."""
        found: Document = self.spec["root"].get("inputDefinitions", {}).get("parameters", {})
        return found


def read_compiled(path: Path) -> Compiled:
    """Read what the compiler wrote.

    Raises:
        UserError: no such file, or no compiled pipeline.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file. `python -m pipelines.compile` writes one.")
    try:
        text = path.read_text(encoding="utf-8")
        spec, *more = [found for found in yaml.safe_load_all(text) if found is not None]
        platform = more[0] if more else {}
        return Compiled(spec, platform, len(text.encode()), tuple(_walk(spec, platform)))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a compiled pipeline ({error})") from error


def _walk(spec: Document, platform: Document) -> Iterator[Task]:
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    pods = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})

    def below(component: Document, above: tuple[Task, ...], guarded: bool) -> Iterator[Task]:
        bodies: Mapping[str, Document] = component["dag"]["tasks"]
        producers = {
            source["taskFinalStatus"]["producerTask"]
            for body in bodies.values()
            for source in body.get("inputs", {}).get("parameters", {}).values()
            if "taskFinalStatus" in source
        }
        for name, body in bodies.items():
            made = spec["components"][body["componentRef"]["name"]]
            label = made.get("executorLabel", "")
            safe = guarded or name in producers
            task = Task(name, body, made, executors.get(label, {}), pods.get(label, {}), above, safe)
            yield task
            if task.is_dag:
                yield from below(made, (*above, task), safe)

    yield from below(spec["root"], (), False)
