"""The `analyst` environment: a shop's books, seven tools, questions with one answer."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from geartrain.config import EnvironmentSection
from geartrain.environments.analyst.editions import EDITIONS, SCHEMA
from geartrain.environments.analyst.episode import SPECS, AnalystEpisode
from geartrain.environments.analyst.expert import AnalystExpert
from geartrain.environments.analyst.flaws import FLAWLESS, Habits
from geartrain.environments.analyst.query import Database
from geartrain.environments.analyst.splits import build_splits
from geartrain.environments.analyst.verification import Entry, describe
from geartrain.environments.environment import Task, ToolSpec, nobody
from geartrain.environments.tools import render_call
from geartrain.errors import UserError
from geartrain.trajectory import Trajectory

_EXAMPLE = render_call(
    "query_database",
    {"sql": "SELECT city, SUM(total) AS v FROM invoice WHERE month = '2010-03' GROUP BY city ORDER BY v DESC LIMIT 2"},
)
FULL = f"""You answer questions about a music shop with tools. Each message is one JSON call, like {_EXAMPLE}
Tools:
list_tables()
describe_table(table)
query_database(sql) -> q1, q2...
analyze_data(data, op, column) -> a1, a2... op: top bottom sum mean diff growth share outlier
generate_report(section, value) value: literal, q1[0] or a1
send_email(to, subject) attaches the report; to: address or q1[0]
finish()
Tables:
""" + "\n".join(f"{table}({', '.join(columns)})" for table, columns in SCHEMA.items())
_SHORTEST = render_call("finish", {})
_SIGNATURES = " ".join(f"{spec.name}({', '.join(spec.parameters['properties'])})" for spec in SPECS)
BRIEF = "You answer questions about a music shop. Each message is one JSON tool call."
SYSTEM = {"full": FULL, "brief": BRIEF}


class AnalystEnvironment:
    """Editions in a folder, each opened once; see `Environment`."""

    name = "analyst"

    def __init__(self, worlds: Path, settings: EnvironmentSection):
        self._worlds = worlds
        self._settings = settings
        self._databases: dict[str, Database] = {}

    def tools(self) -> Sequence[ToolSpec]:
        """Return the seven tools."""
        return SPECS

    def build_tasks(
        self, *, seed: int, sizes: Mapping[str, int], on_task: Callable[[int], object] = nobody
    ) -> dict[str, list[Task]]:
        """Generate every split. Raises UserError on unknown splits, missing worlds, or sizes that cannot be met."""
        return build_splits(self._worlds, seed=seed, sizes=sizes, on_task=on_task)

    def reset(self, task: Task, *, seed: int) -> AnalystEpisode:
        """Start an episode. The world is the task's edition, whatever the seed: nothing here is random."""
        return AnalystEpisode(
            task, self._database(task), system=SYSTEM[self._settings.prompt], row_limit=self._settings.row_limit
        )

    def answer(self, task: Task) -> str:
        """Return the true content of every section, and whom a mail must reach."""
        facts = [f"{name} = {describe(Entry(f['label'], f['value']))}" for name, f in task.spec["facts"].items()]
        mail = [f"mail to {task.spec['recipient']}"] if task.spec["recipient"] else []
        return "The answer: " + "; ".join([*facts, *mail])

    def describe_phases(
        self, trajectories: Sequence[Trajectory], tasks: Mapping[str, Task], *, horizon: Callable[[Task], int]
    ) -> dict[str, float]:
        """Return nothing: an agent asks, reckons and writes in whatever order it likes."""
        return {}

    def expert(self, task: Task, *, seed: int, flawed: bool, habits: Habits | None = None) -> AnalystExpert:
        """Return the scripted expert; `habits` replaces the defaults of the flawed one."""
        return AnalystExpert(task, seed=seed, habits=(habits or Habits()) if flawed else FLAWLESS)

    def close(self) -> None:
        """Close the editions."""
        for database in self._databases.values():
            database.close()
        self._databases.clear()

    def _database(self, task: Task) -> Database:
        known = self._databases.get(task.world)
        if known is None:
            if task.environment != self.name or task.world not in EDITIONS:
                raise UserError(f"task {task.task_id}: no world '{task.world}' in environment '{self.name}'")
            path = self._worlds / f"{task.world}.sqlite"
            known = self._databases[task.world] = Database(path, step_limit=self._settings.sql_steps)
        return known
