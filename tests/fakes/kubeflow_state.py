"""What a Kubeflow Pipelines server remembers and how it decides, without the HTTP: JSON in, JSON out.

It speaks the v2beta1 shapes of kfp_server_api 2.17.3 (test_kubeflow.py holds it against the real client), and has
the habits that hurt: a name is unique among versions but not among schedules, an int64 is a string, "not yet" is 1970,
a deleted schedule takes its runs along unless told not to.
"""

import copy
import json
import uuid
from datetime import UTC, datetime, timedelta

import yaml

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
FINISHED = {"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"}
NEVER = "1970-01-01T00:00:00Z"


class RefusedError(Exception):
    """An answer other than 2xx."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message


def rewritten(spec):
    """A document as the server stores it: parsed, and written by protobuf, which leaves default values out."""
    if isinstance(spec, dict):
        written = {key: rewritten(value) for key, value in spec.items()}
        return {key: value for key, value in written.items() if value not in (False, 0, "", {}, [])}
    if isinstance(spec, list):
        return [rewritten(item) for item in spec]
    return float(spec) if isinstance(spec, int) and not isinstance(spec, bool) else spec


class State:
    """One server's memory; `killed` lists the runs that deleting a schedule ended."""

    def __init__(self, *, tag="2.17.1", multi_user=False):
        self.health = {"commit_sha": "abc", "tag_name": tag, "multi_user": multi_user, "pipeline_store": "database"}
        self.pipelines, self.versions, self.experiments, self.runs, self.recurring = {}, {}, {}, {}, {}
        self.logs, self.killed = {}, []
        self._made = 0

    def stamp(self):
        """A new id, and a time one second after that of the last."""
        self._made += 1
        moment = START + timedelta(seconds=self._made)
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(self._made))), moment.isoformat().replace("+00:00", "Z")

    # pipelines

    def create_pipeline(self, body):
        if any(pipeline["name"] == body["name"] for pipeline in self.pipelines.values()):
            raise RefusedError(409, f"The name {body['name']} already exist. Please specify a new name.")
        pipeline_id, created = self.stamp()
        self.pipelines[pipeline_id] = {**body, "pipeline_id": pipeline_id, "created_at": created}
        return self.pipelines[pipeline_id]

    def upload_pipeline(self, content, name, namespace=None, **_):
        pipeline = self.create_pipeline({"name": name, "display_name": name})
        self.upload_version(content, name, pipeline["pipeline_id"])
        return pipeline

    def upload_version(self, content, name, pipelineid, description=None, **_):
        self._known(self.pipelines, pipelineid, "Pipeline")
        same = [v for v in self.versions.values() if (v["pipeline_id"], v["name"]) == (pipelineid, name)]
        if same:
            raise RefusedError(409, f"The name {name} already exist for this pipeline.")
        documents = list(yaml.safe_load_all(content))
        spec = documents[0] if len(documents) == 1 else {"pipeline_spec": documents[0], "platform_spec": documents[1]}
        version_id, created = self.stamp()
        self.versions[version_id] = {
            "pipeline_id": pipelineid,
            "pipeline_version_id": version_id,
            "name": name,
            "display_name": name,
            "description": description,
            "created_at": created,
            "pipeline_spec": rewritten(spec),
        }
        return self.versions[version_id]

    # experiments and runs

    def create_experiment(self, body):
        if any(one["display_name"] == body["display_name"] for one in self.experiments.values()):
            raise RefusedError(409, "Experiment already exists")
        experiment_id, created = self.stamp()
        self.experiments[experiment_id] = {**body, "experiment_id": experiment_id, "created_at": created}
        return self.experiments[experiment_id]

    def create_run(self, body):
        self._known(self.experiments, body.get("experiment_id"), "Experiment")
        self._version(body)
        run_id, created = self.stamp()
        self.runs[run_id] = {
            **copy.deepcopy(body),
            "run_id": run_id,
            "created_at": created,
            "scheduled_at": created,
            "finished_at": NEVER,
            "state": "PENDING",
            "storage_state": "AVAILABLE",
        }
        return self.runs[run_id]

    def finish(self, run_id, state, *, error=None, tasks=()):
        """Give a run its end, as the workflow controller would report it."""
        run = self.runs[run_id]
        run.update(state=state, finished_at=self.stamp()[1], run_details={"task_details": list(tasks)})
        if error:
            run["state_history"] = [{"update_time": run["finished_at"], "state": state, "error": {"message": error}}]

    def terminate(self, run_id):
        run = self._known(self.runs, run_id, "Run")
        if run["state"] in FINISHED:
            raise RefusedError(400, f"Failed to terminate run {run_id}: it is in a terminal state {run['state']}")
        run["state"] = "CANCELING"
        return {}

    def retry(self, run_id):
        run = self._known(self.runs, run_id, "Run")
        if run["state"] != "FAILED":
            raise RefusedError(400, f"Failed to retry run {run_id}: only failed runs can be retried")
        run.update(state="RUNNING", finished_at=NEVER)
        return {}

    def log(self, node):
        if node not in self.logs:  # the server makes no difference between "none" and trouble
            raise RefusedError(500, f"Failed to read logs from pod {node}")
        return self.logs[node]

    # schedules

    def create_recurring(self, body):
        self._known(self.experiments, body.get("experiment_id"), "Experiment")
        self._version(body)
        cron = body["trigger"]["cron_schedule"]["cron"]
        if len(cron.split()) not in (5, 6):  # five are taken, and read as seconds first
            raise RefusedError(400, f"Invalid cron {cron}")
        if not 1 <= int(body["max_concurrency"]) <= 10:
            raise RefusedError(400, "The max concurrency of a recurring run must be between 1 and 10")
        recurring_id, created = self.stamp()
        enabled = "ENABLED" if body["mode"] == "ENABLE" else "DISABLED"
        self.recurring[recurring_id] = {
            **copy.deepcopy(body),
            "recurring_run_id": recurring_id,
            "created_at": created,
            "max_concurrency": str(body["max_concurrency"]),
            "status": enabled,
            "no_catchup": body.get("no_catchup", False),
        }
        return self.recurring[recurring_id]

    def switch(self, recurring_id, enabled):
        item = self._known(self.recurring, recurring_id, "RecurringRun")
        item["mode"] = "ENABLE" if enabled else "DISABLE"  # the status is the controller's, which reports later
        return {}

    def fire(self, recurring_id):
        """Start a run of a schedule, as the controller does when its time has come."""
        item = self.recurring[recurring_id]
        assert item["mode"] == "ENABLE"
        fields = ("experiment_id", "pipeline_version_reference", "runtime_config", "service_account")
        run = self.create_run({key: item[key] for key in fields if key in item})
        run.update(recurring_run_id=recurring_id, display_name=f"{item['display_name']} run", state="RUNNING")
        return run["run_id"]

    def active(self, recurring_id):
        runs = self.runs.values()
        return [r for r in runs if r.get("recurring_run_id") == recurring_id and r["state"] not in FINISHED]

    def delete_recurring(self, recurring_id, policy=""):
        self._known(self.recurring, recurring_id, "RecurringRun")
        if policy != "ORPHAN":
            for run in self.active(recurring_id):
                self.killed.append(run["run_id"])
                run["state"] = "FAILED"
        del self.recurring[recurring_id]
        return {}

    # lists

    def page(self, items, query):
        """One page of a list, filtered and sorted as the query says; the token is opaque to clients."""
        for predicate in json.loads(query.get("filter") or "{}").get("predicates", ()):
            key, value = predicate["key"], predicate.get("stringValue", predicate.get("string_value"))
            assert predicate["operation"] in ("EQUALS", 1)
            items = [item for item in items if item.get(key, "") == value]
        field, _, direction = (query.get("sort_by") or "created_at").partition(" ")
        items = sorted(items, key=lambda item: item.get(field, ""), reverse=direction == "desc")
        start, size = int(query.get("page_token") or 0), int(query.get("page_size") or 10)
        token = str(start + size) if start + size < len(items) else ""
        return items[start : start + size], token, len(items)

    def _version(self, body):
        reference = body.get("pipeline_version_reference") or {}
        version = self._known(self.versions, reference.get("pipeline_version_id"), "PipelineVersion")
        if version["pipeline_id"] != reference.get("pipeline_id"):
            raise RefusedError(400, "the version is of another pipeline")

    def _known(self, items, key, kind):
        if key not in items:
            raise RefusedError(404, f"{kind} {key} not found")
        return items[key]
