"""The command `geartrain sandbox check`: whether this machine can confine code that nobody vouches for."""

import os
import platform
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="The sandbox for code that a model or a program wrote.")


@app.callback()
def group() -> None:
    """The sandbox for code that a model or a program wrote."""


@app.command()
def check(
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="A module that code shall be able to import; may be repeated.", metavar="NAME"),
    ] = None,
) -> None:
    """Say whether this machine can confine code, and try every wall from inside.

    Ends with exit code 2 where something is missing, and says what. What no
    sandbox of this kind stops is listed in SECURITY.md.

    \b
    geartrain sandbox check
    geartrain sandbox check --import numpy
    """
    from geartrain.sandbox.confinement import NOBODY
    from geartrain.sandbox.supervisor import Sandbox

    with Sandbox(imports or ()) as sandbox:
        user = NOBODY if os.geteuid() == 0 else os.geteuid()
        print(f"kernel {platform.release()}, Landlock {sandbox.abi}, seccomp on {platform.machine()}, user {user}")
        for finding in sandbox.findings:
            print(f"  cannot {finding.means:48} {finding.how}")
    print("code can be confined on this machine")
