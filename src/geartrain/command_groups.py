"""The commands that lie in modules of their own, as `cli` offers them; a new one is added here."""

import typer

from geartrain import (
    data_commands,
    diagnose_command,
    exporter_command,
    feature_commands,
    lineage_commands,
    model_commands,
    operations,
    preference_commands,
    reward_commands,
    sandbox_command,
    scheduling,
    serve_commands,
    upkeep,
)
from geartrain.cluster import node_command

GROUPS = {
    "data": data_commands.app,
    "features": feature_commands.app,
    "model": model_commands.app,
    "preferences": preference_commands.app,
    "reward": reward_commands.app,
    "sandbox": sandbox_command.app,
}
"""Name -> commands that are called by it, such as `geartrain data status`."""
COMMANDS = (
    *(lineage_commands.app, serve_commands.app, exporter_command.app, operations.app, upkeep.app),
    *(diagnose_command.app, node_command.app),
)
"""Commands without a group."""


def add_to(app: typer.Typer) -> None:
    """Add all of them to the command line."""
    for name, commands in GROUPS.items():
        app.add_typer(commands, name=name)
    for commands in COMMANDS:
        app.add_typer(commands)
    app.add_typer(scheduling.app, name="schedule", rich_help_panel=operations.PANEL)
