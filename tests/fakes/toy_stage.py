"""A stage that does next to nothing, and its input."""

from pathlib import Path

from geartrain import artifacts
from geartrain.stages.stage import Job, Metrics

OUT = {"toy": Path("out/toy")}


class Body:
    """A stage body that counts, and fails or is killed on demand."""

    __module__ = "toy"
    __name__ = "toy"
    __qualname__ = "toy"

    def __init__(self) -> None:
        self.calls = 0
        self.error: BaseException | None = None

    def __call__(self, job: Job) -> Metrics:
        self.calls += 1
        checkpoint = job.work / "checkpoint"
        checkpoint.write_text((checkpoint.read_text() if checkpoint.exists() else "") + "x")
        if self.error is not None:
            raise self.error
        (job.outputs["toy"] / "result").write_text(f"{job.config.seed} {job.config.policy.iterations}")
        return {"calls_seen": len(checkpoint.read_text())}


def seal_tasks(made_from: dict[str, str]) -> str:
    folder = Path("tasks")
    folder.mkdir(exist_ok=True)
    (folder / "train.jsonl").write_text("{}\n")
    manifest = artifacts.write_manifest(
        folder, stage="tasks", parameters={}, inputs=made_from, metrics={}, ancestors={"f" * 64: "older"}
    )
    return manifest.digest
