"""The commands `geartrain serve` and `geartrain top`: look at runs while they go, and after; `cli` adds them.

Nothing heavy is imported at the top.
"""

import threading
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from geartrain import logs
from geartrain.errors import UserError

app = typer.Typer()

Folder = Annotated[
    Path, typer.Argument(metavar="[DIR]", help="A workspace, or a folder of some; default: here.", show_default=False)
]
PORT = 6577


@app.command()
def serve(
    directory: Folder = Path(),
    port: Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)] = PORT,
    host: Annotated[str, typer.Option(help="The address to listen on; default: this machine alone.")] = "127.0.0.1",
    compare: Annotated[
        Path | None, typer.Option(help="Another workspace to compare with, by its folder.", show_default=False)
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name by which browsers may call this server; may be repeated."),
    ] = None,
) -> None:
    """Show runs in the browser: live curves, episodes with the credit of each step, gate, lineage, comparisons.

    Everything comes from the records of the runs themselves; nothing is loaded
    from elsewhere, and no workspace is changed. It ends with Ctrl-C.

    \b
    geartrain serve                                  this workspace, and those in runs/
    geartrain serve runs/smoke
    geartrain serve runs/a --compare runs/b
    """
    from geartrain.viewer.answers import Answers
    from geartrain.viewer.server import Server
    from geartrain.viewer.workspaces import find_workspaces

    others = {} if compare is None else _other(compare)
    answers = Answers(directory, others)
    first = next(iter(find_workspaces(directory)))
    known = {str((directory / name).resolve()): name for name in find_workspaces(directory)}
    shown = {"run": first} if len(known) == 1 or others else {}
    for name, folder in others.items():
        shown["other"] = known.get(str(folder.resolve()), name)
    with Server((host, port), answers, names or ()) as server:
        place = f"http://{host if ':' not in host else f'[{host}]'}:{server.server_port}/"
        print(f"{place}{'#' + urlencode(shown) if shown else ''}", flush=True)
        logs.say("Ctrl-C ends it")
        threading.Thread(target=answers.warm, daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _other(folder: Path) -> dict[str, Path]:
    from geartrain.viewer.workspaces import OWN, find_workspaces

    if OWN not in (find_workspaces(folder) if folder.is_dir() else {}):
        raise UserError(f"--compare {folder}: no workspace: it has no params.yaml. Name the folder of a run.")
    return {folder.as_posix(): folder}


@app.command()
def top(
    directory: Folder = Path(),
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end; so it is in a pipe.")] = False,
) -> None:
    """Show a run live in the terminal: stages, progress, time left, curves, alarms, age of the last checkpoint.

    Of several workspaces the one at work is shown. Keys: q quits, n shows the
    next workspace, f follows what happens again.

    \b
    geartrain top
    geartrain top runs/smoke
    geartrain top --once | head -3
    """
    from rich.console import Console

    from geartrain.viewer import terminal

    view, console = terminal.View(directory), Console(highlight=False)
    if once or not console.is_terminal:
        terminal.once(view, console)
        return
    try:
        terminal.watch(view, console)
    except KeyboardInterrupt:
        return
