"""Episodes that were played and not yet trained on: a run that is killed between the two does not play them again."""

from collections.abc import Sequence
from pathlib import Path

from geartrain.trajectory import Trajectory, read_trajectories, write_trajectories

FOLDER = "in-flight"


class InFlight:
    """The rounds of play of the iteration at hand, one file each; written whole or not at all.

    They belong to the weights of one checkpoint: those of `iteration` iterations.
    """

    def __init__(self, work: Path) -> None:
        self._folder = work / FOLDER

    def read(self, iteration: int, refill: int) -> list[Trajectory] | None:
        """Return what was played, or None."""
        path = self._path(iteration, refill)
        return list(read_trajectories(path)) if path.is_file() else None

    def write(self, iteration: int, refill: int, trajectories: Sequence[Trajectory]) -> None:
        """Keep a round."""
        path = self._path(iteration, refill)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        write_trajectories(temporary, trajectories)
        temporary.replace(path)

    def rounds(self, iteration: int) -> list[Path]:
        """Return the files of an iteration's rounds, in order."""
        found = self._folder.glob(f"{iteration:09d}-*.parquet")
        return sorted(found, key=lambda path: int(path.stem.partition("-")[2]))

    def forget(self, *, but: int) -> None:
        """Remove the rounds of all iterations but one."""
        for path in self._folder.glob("*") if self._folder.is_dir() else ():
            if not path.name.startswith(f"{but:09d}-"):
                path.unlink()

    def _path(self, iteration: int, refill: int) -> Path:
        return self._folder / f"{iteration:09d}-{refill}.parquet"
