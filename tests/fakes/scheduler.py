"""The recurring-run part of a server, without HTTP, that checks at each call what must never happen."""

from collections import Counter

from geartrain.cluster import decoding
from geartrain.cluster.interface import NotFoundError
from geartrain.cluster.schedules import owner_of
from tests.fakes.kubeflow_state import RefusedError, State


class CrashError(Exception):
    """The process ended here."""


class Direct:
    """`geartrain.cluster.schedules.Scheduler` over a State; calls can fail before or after they take effect."""

    def __init__(self, packages):
        self.packages = packages
        self.state = State()
        self.experiment = self.state.create_experiment({"display_name": "geartrain"})["experiment_id"]
        self.pipeline = self.state.create_pipeline({"name": "geartrain", "display_name": "geartrain"})["pipeline_id"]
        self.meddled = False
        self._hooks, self._left, self._done, self._error = {}, None, False, None

    def ensure(self, index):
        """The stored version of a package, uploaded if it is not there."""
        package = self.packages[index]
        for version in self.state.versions.values():
            if version["name"] == package.version_name:
                return decoding.version(version)
        return decoding.version(
            self.state.upload_version(package.path.read_text(), package.version_name, self.pipeline)
        )

    def all(self):
        return [decoding.recurring(item) for item in self.state.recurring.values()]

    def at_work(self):
        return [run["run_id"] for run in self.state.runs.values() if decoding.run(run).active]

    def before(self, call, hook):
        """Do something once, right before the next call of that name."""
        self._hooks[call] = hook

    def break_at(self, call, *, done, error):
        """Let the call of that number (from now, changes only) fail, before or after it took effect."""
        self._left, self._done, self._error = call, done, error

    def heal(self):
        self._left = None

    def list_recurring(self, *, experiment):
        assert experiment == self.experiment
        return self.all()

    def list_runs(self, *, recurring_run):
        return [decoding.run(run) for run in self.state.runs.values() if run.get("recurring_run_id") == recurring_run]

    def version(self, _pipeline_id, version_id):
        return decoding.version(
            self._call("version", lambda: self.state._known(self.state.versions, version_id, "Version"))
        )

    def create_recurring(self, wanted, *, experiment):
        body = {
            "display_name": wanted.name,
            "description": wanted.description,
            "experiment_id": experiment,
            "mode": "ENABLE" if wanted.enabled else "DISABLE",
            "trigger": {"cron_schedule": {"cron": wanted.cron}},
            "max_concurrency": str(wanted.max_concurrency),
            "no_catchup": wanted.no_catchup,
            "pipeline_version_reference": {
                "pipeline_id": wanted.pipeline_id,
                "pipeline_version_id": wanted.version_id,
            },
            "runtime_config": {"parameters": dict(wanted.parameters)},
            "service_account": wanted.service_account,
        }
        return decoding.recurring(self._change("create", lambda: self.state.create_recurring(body)))

    def enable(self, recurring_id):
        self._change("enable", lambda: self.state.switch(recurring_id, True))

    def disable(self, recurring_id):
        self._change("disable", lambda: self.state.switch(recurring_id, False))

    def delete(self, recurring_id):
        assert not self.state.active(recurring_id), "a schedule with a run at work was deleted"
        self._change("delete", lambda: self.state.delete_recurring(recurring_id))

    def _change(self, name, effect):
        hook = self._hooks.pop(name, None)
        if hook is not None:
            hook()
        broken = self._left == 0
        if self._left is not None:
            self._left -= 1
        try:
            return self._breaking(effect) if broken else self._call(name, effect)
        finally:
            if not self.meddled:
                on = Counter(owner_of(item) for item in self.all() if item.enabled)
                assert not on or max(on.values()) == 1, "two schedules of one name are on"

    def _breaking(self, effect):
        """Fail, before or after it took effect."""
        if self._done:
            self._call("", effect)
        raise self._error

    def _call(self, _name, effect):
        try:
            return effect()
        except RefusedError as refused:
            if refused.status == 404:
                raise NotFoundError(str(refused)) from refused
            raise
