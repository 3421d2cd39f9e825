"""Independent pieces of work in processes of their own, one thread share each.

A small model's decoding is a long row of tiny operations: a second thread
hardly helps it, a second process nearly doubles it. What a piece computes does
not depend on where it runs, so one process or several give the same bits.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from importlib import import_module
from typing import Any

from geartrain import logs
from geartrain.errors import GeartrainError, InfrastructureError, UserError
from geartrain.processes import end_with_parent

Work = Callable[..., Any]
"""Called with a piece's arguments and `on_progress`, a function of a count."""

_POLL_SECONDS = 0.5
_STOP = -1
_shared: Any = None
"""In a worker: the counter of what all workers have done."""


def run_apart(
    work: Work, pieces: Sequence[tuple[Any, ...]], *, threads: int, on_progress: Callable[[int], Any]
) -> list[Any]:
    """Run `work(*piece, on_progress)` for every piece; return what each returned.

    Args:
        work: a function of a module, so that a fresh process finds it.
        pieces: arguments of each call; they are pickled, as are results.
        threads: cores to share; with fewer than two, or one piece, all runs in this process.
        on_progress: told how much was done since it was last called.

    Raises:
        UserError: as raised by a piece.
        InfrastructureError: as raised by a piece, or a process was killed (out of memory, most often).
    """
    with Crew(min(threads, len(pieces)), threads=threads) as crew:
        return crew.run(work, pieces, on_progress=on_progress)


class Crew:
    """Processes that stay for work that comes again; with fewer than two, all work is done in this process.

    They end with `close`, and with this process, however it ends.
    """

    def __init__(self, workers: int, *, threads: int, imports: Sequence[str] = ()) -> None:
        """Start `workers` processes that share `threads` cores; they import while this one goes on loading.

        Args:
            workers: how many processes.
            threads: cores to share.
            imports: modules that the work will need; importing torch and transformers takes seconds.
        """
        self.workers = max(1, workers)
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            context = multiprocessing.get_context("spawn")  # forking a process that runs threads deadlocks
            self._counter = context.Value("q", 0)
            setup = (self._counter, max(1, threads // workers), os.getpid())
            self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=setup)
            for _ in range(workers):
                self._pool.submit(_import, tuple(imports))

    def run(
        self, work: Work, pieces: Sequence[tuple[Any, ...]], *, on_progress: Callable[[int], Any] = lambda done: None
    ) -> list[Any]:
        """As `run_apart`. After an error the crew is of no more use."""
        if self._pool is None:
            return [work(*piece, on_progress) for piece in pieces]
        self._counter.value = 0
        futures = [self._pool.submit(_call, work, piece) for piece in pieces]
        try:
            _follow(futures, self._counter, on_progress)
        except BaseException:
            self._counter.value = _STOP
            raise
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _follow(futures: Sequence[Future[Any]], counter: Any, on_progress: Callable[[int], Any]) -> None:
    seen, waiting = 0, set(futures)
    while waiting:
        finished, waiting = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
        done = counter.value
        if done > seen:
            on_progress(done - seen)
            seen = done
        for future in finished:
            try:
                future.result()
            except BrokenProcessPool as error:
                problem = "a process of this stage was killed, most often for lack of memory"
                raise InfrastructureError(f"{problem}. Lower `threads` to 1 or `sampling.rows`, run again.") from error


def _set_up(counter: Any, threads: int, parent: int) -> None:
    global _shared
    end_with_parent()
    if os.getppid() != parent:  # it ended before that was asked for
        os._exit(1)
    _shared = counter, parent
    logs.set_up()
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is loaded, which is later than now
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _import(names: Sequence[str]) -> None:
    for name in names:
        with suppress(ImportError):  # whoever needs it will say so
            import_module(name)


def _call(work: Work, piece: tuple[Any, ...]) -> Any:
    try:
        return work(*piece, _count)
    except UserError as error:
        raise UserError(str(error)) from None
    except GeartrainError as error:  # may carry what cannot be sent to another process
        raise InfrastructureError(str(error)) from None


def _count(done: int) -> None:
    counter, parent = _shared
    with counter.get_lock():
        stopped = counter.value < 0
        counter.value += 0 if stopped else done
    if stopped or os.getppid() != parent:
        os._exit(1)  # another piece failed, or the stage was killed: its next run must have the work to itself
