"""`geartrain`, and `python -m geartrain`."""

from typing import NoReturn

from geartrain import logs
from geartrain.cli import main
from geartrain.processes import run_to_end
from geartrain.ranks import leave


def run() -> NoReturn:
    """Run the command line and end the process."""
    logs.set_up()
    code, _ = run_to_end(main)
    leave(code)


if __name__ == "__main__":
    run()
