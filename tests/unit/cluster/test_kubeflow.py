"""The client of Kubeflow Pipelines against a real HTTP server, through the real kfp client."""

import re
import threading
import warnings

import kfp
import pytest

from geartrain.cluster.interface import ForbiddenError, InvalidError, NotFoundError
from geartrain.cluster.kubeflow import Kubeflow
from geartrain.cluster.package import read_package
from geartrain.cluster.records import Recurring, UnavailableError
from geartrain.errors import UserError
from tests.fakes.kubeflow_server import KubeflowServer
from tests.fakes.kubeflow_state import State
from tests.fakes.pipeline import write_pipeline

SCHEDULE = {"cron": "0 0 2 * * *", "enabled": True, "parameters": {"seed": 1}}


@pytest.fixture
def server():
    with KubeflowServer() as running:
        yield running


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def client(server, pauses):
    return Kubeflow(server.url, sleep=pauses.append)


@pytest.fixture
def package(tmp_path):
    return read_package(write_pipeline(tmp_path / "training.yaml"))


@pytest.fixture
def place(client, package):
    """(version, experiment) of a server that knows our pipeline."""
    return client.ensure_version(package), client.ensure_experiment("geartrain")


def start(client, place, submission="s1", name="demo"):
    version, experiment = place
    options = {"parameters": {"seed": 1}, "service_account": "geartrain-pipeline", "submission": submission}
    return client.create_run(version, experiment=experiment, name=name, **options)


def schedule(client, place, name="nightly", **changes):
    version, experiment = place
    given = {**SCHEDULE, **changes, "pipeline_id": version.pipeline_id, "version_id": version.id}
    return client.create_recurring(Recurring(id="", name=name, **given), experiment=experiment)


def test_the_server_says_its_version_which_the_generated_decoder_drops(client, server):
    assert client.server().version == "2.17.1"
    assert not hasattr(official(server).get_kfp_healthz(), "tag_name")


def official(server):
    """The client as Kubeflow ships it: what it reads and writes, our fake must serve."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kfp.Client(host=server.url, namespace="-")


def test_the_fake_serves_the_official_client_too(server, package, client, capsys):
    sdk = official(server)
    pipeline = sdk.upload_pipeline(str(package.path), "geartrain")
    version = sdk.upload_pipeline_version(str(package.path), "v2", pipeline_id=pipeline.pipeline_id)
    experiment = sdk.create_experiment("geartrain")
    ids = {"pipeline_id": pipeline.pipeline_id, "version_id": version.pipeline_version_id}
    run = sdk.run_pipeline(experiment.experiment_id, "first", params={"seed": 1}, **ids)
    job = sdk.create_recurring_run(
        experiment.experiment_id, "nightly", cron_expression="0 0 2 * * *", no_catchup=True, params={"seed": 1}, **ids
    )
    assert sdk.get_run(run.run_id).state == "PENDING"
    assert [item.run_id for item in sdk.list_runs().runs] == [run.run_id]
    assert sdk.get_recurring_run(job.recurring_run_id).max_concurrency == "1"
    # and both read the same of it
    ours = client.run(run.run_id)
    assert (ours.id, ours.name, ours.state, ours.created) == (run.run_id, "first", "PENDING", run.created_at)
    (listed,) = client.list_recurring(experiment=experiment.experiment_id)
    assert (listed.id, listed.cron, listed.no_catchup, listed.enabled) == (
        job.recurring_run_id,
        job.trigger.cron_schedule.cron,
        True,
        True,
    )
    assert capsys.readouterr().out.count(" details: ") == 4  # the official client prints links, ours does not


def test_content_is_uploaded_once_and_found_again_by_its_hash(client, server, package, tmp_path):
    first = client.ensure_version(package)
    assert first.name == package.version_name
    assert client.ensure_version(package) == first
    assert server.count("upload_version") == 1
    changed = read_package(write_pipeline(tmp_path / "other.yaml", image="geartrain/python@sha256:1"))
    assert client.find_version(changed) is None
    assert client.ensure_version(changed).id != first.id


def test_a_version_that_holds_something_else_than_its_name_says_is_refused(client, server, package):
    version = client.ensure_version(package)
    server.state.versions[version.id]["pipeline_spec"]["root"]["dag"]["tasks"] = {}
    with pytest.raises(UserError, match="does not hold what its name says"):
        client.ensure_version(package)


def test_a_platform_document_counts_as_content(client, tmp_path):
    package = read_package(write_pipeline(tmp_path / "p.yaml", platform={"platforms": {"kubernetes": {}}}))
    assert client.ensure_version(package).name == package.version_name
    assert package.digest != read_package(write_pipeline(tmp_path / "q.yaml")).digest


def test_a_list_is_read_to_its_last_page(client, place, server, monkeypatch):
    monkeypatch.setattr("geartrain.cluster.kubeflow.PAGE", 2)
    made = [start(client, place, f"s{number}").id for number in range(5)]
    assert [run.id for run in client.list_runs()] == made[::-1]
    assert server.count(r"GET /apis/v2beta1/runs\?") == 3
    assert next(client.list_runs()).id == made[-1]
    assert server.count(r"GET /apis/v2beta1/runs\?") == 4  # no page is asked for that nobody takes
    names = [schedule(client, place, f"n{number}").name for number in range(3)]
    assert [item.name for item in client.list_recurring(experiment=place[1])] == names


def test_pages_that_go_in_a_circle_end(client, place, server, monkeypatch):
    monkeypatch.setattr(server.state, "page", lambda items, query: ([], "again", 0))
    with pytest.raises(UnavailableError, match="in a circle"):
        list(client.list_runs())


def test_runs_of_a_schedule_are_found_also_where_the_server_cannot_filter_by_it(client, place, server):
    made = schedule(client, place)
    run_id = server.state.fire(made.id)
    start(client, place)
    assert [run.id for run in client.list_runs(recurring_run=made.id)] == [run_id]
    server.fail("GET .*/runs$", status=400)
    assert [run.id for run in client.list_runs(recurring_run=made.id)] == [run_id]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again_with_growing_pauses(client, server, pauses, status):
    server.fail("healthz", status=status, times=3)
    assert client.server().version == "2.17.1"
    assert pauses == [0.5, 1.0, 2.0]


def test_the_pause_that_the_server_asks_for_is_kept_within_reason(client, server, pauses):
    server.fail("healthz", status=429, headers={"Retry-After": "7"})
    server.fail("healthz", status=429, headers={"Retry-After": "3600"})
    client.server()
    assert pauses == [7.0, 30.0]


def test_a_server_that_stays_down_is_an_error_that_may_pass(client, server, pauses):
    server.fail("healthz", status=503, times=99)
    with pytest.raises(UnavailableError, match="HTTP 503: injected fault"):
        client.server()
    assert len(pauses) == 4


def test_nobody_there_says_where_to_look(pauses):
    with KubeflowServer() as gone:
        client = Kubeflow(gone.url, sleep=pauses.append)
    with pytest.raises(UnavailableError, match="port-forward"):
        client.server()


def test_a_slow_answer_is_given_up(server, pauses):
    client = Kubeflow(server.url, timeout=0.05, sleep=pauses.append)
    for _ in range(5):
        server.fail("healthz", wait=threading.Event())
    with pytest.raises(UnavailableError, match="ReadTimeoutError") as caught:
        client.server()
    assert caught.value.maybe_done


def test_a_dropped_connection_is_tried_again(client, server):
    server.fail("healthz", drop=True, times=2)
    assert client.server().version == "2.17.1"


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (401, ForbiddenError, "--token-file"),
        (403, ForbiddenError, "geartrain doctor"),
        (404, NotFoundError, "geartrain runs"),
        (302, ForbiddenError, "a log-in stands in front"),
        (400, InvalidError, "older than 2.17"),
    ],
)
def test_a_refusal_names_its_mend_and_is_not_repeated(client, server, pauses, status, kind, hint):
    server.fail("GET .*/runs/x", status=status, headers={"Location": "/dex/auth"})
    with pytest.raises(kind, match=hint):
        client.run("x")
    assert pauses == []


def test_the_page_of_a_log_in_is_not_taken_for_an_empty_answer(client, server):
    server.fail("/runs/x", status=200, body=b"<html>log in</html>", kind="text/html", times=2)
    assert official(server).get_run("x").state is None  # that is what the generated decoder makes of it
    with pytest.raises(ForbiddenError, match="answered with a page"):
        client.run("x")


def test_trouble_with_tls_is_named_though_the_generated_client_stumbles(server, pauses):
    client = Kubeflow(server.url.replace("http:", "https:"), sleep=pauses.append)
    with pytest.raises(ForbiddenError, match="--ca-file"):
        client.server()


def test_the_token_is_read_anew_and_never_shown(tmp_path, pauses):
    token = tmp_path / "token"
    token.write_text("first")
    with KubeflowServer(token="first") as server:
        client = Kubeflow(server.url, token_file=token, sleep=pauses.append)
        client.server()
        server.token = "second"
        with pytest.raises(ForbiddenError, match="401") as caught:
            client.server()
        assert "first" not in str(caught.value)
        token.write_text("second")  # the kubelet renews it
        client.server()
        token.unlink()
        with pytest.raises(UserError, match="Is it the file of a token"):
            client.server()


def test_a_lost_answer_starts_no_second_run(client, place, server, pauses):
    server.fail("POST .*/runs$", status=504, after=True)
    run = start(client, place, "only-one")
    assert list(server.state.runs) == [run.id]
    server.fail("POST .*/runs$", drop=True)  # this one did not arrive: it is sent again
    assert start(client, place, "another").id in server.state.runs
    assert len(server.state.runs) == 2


def test_an_upload_whose_answer_is_lost_counts(client, package, server):
    server.fail("upload_version", status=500, after=True)
    assert client.ensure_version(package).name == package.version_name
    assert server.count("upload_version") == 1


def test_what_somebody_else_made_first_is_used(client, package, server):
    for path in ("pipelines", "pipelines/upload_version", "experiments"):
        server.fail(f"POST .*/{path}$", status=409, after=True)
    assert client.ensure_version(package).name == package.version_name
    assert client.ensure_experiment("geartrain") in server.state.experiments
    assert len(server.state.pipelines) == len(server.state.versions) == len(server.state.experiments) == 1


def test_cancelling_is_idempotent_and_retrying_is_not_blind(client, place, server):
    run = start(client, place)
    client.terminate(run.id)
    assert client.run(run.id).state == "CANCELING"
    server.state.finish(run.id, "CANCELED")
    client.terminate(run.id)
    with pytest.raises(InvalidError, match="only failed runs"):
        client.retry(run.id)
    with pytest.raises(NotFoundError):
        client.terminate("nobody")


def test_unknown_times_and_errors_of_a_run_are_read(client, place, server):
    run = start(client, place)
    assert (run.finished, run.active) == (None, True)  # the server says 1970
    server.state.finish(run.id, "FAILED", error="main: Error (exit code 2)")
    ended = client.run(run.id)
    assert (ended.error, ended.active) == ("main: Error (exit code 2)", False)
    assert ended.finished is not None
    assert ended.finished > ended.created


def test_a_schedule_is_made_as_asked_and_leaves_its_runs_alone_when_it_goes(client, place, server):
    made = schedule(client, place)
    assert (made.max_concurrency, made.no_catchup, made.enabled) == (1, True, True)
    client.disable(made.id)
    assert server.state.recurring[made.id]["status"] == "ENABLED"  # the controller has not reported yet
    assert [item.enabled for item in client.list_recurring(experiment=place[1])] == [False]
    client.enable(made.id)
    server.state.fire(made.id)
    client.delete(made.id)
    client.delete(made.id)
    assert server.state.killed == []  # kubeflow/pipelines#7421
    assert server.state.recurring == {}


def test_a_log_is_read_as_text_and_none_is_none_at_once(client, place, server, pauses):
    run = start(client, place)
    server.state.logs["training-1"] = "step 1\nstep 2\n"
    assert client.node_log(run.id, "training-1") == "step 1\nstep 2\n"
    with pytest.raises(NotFoundError, match="no log of training-2"):
        client.node_log(run.id, "training-2")  # HTTP 500, on a real server too
    assert pauses == []


@pytest.mark.parametrize("several", [True, False])
def test_a_namespace_is_named_where_there_are_several_users_and_only_there(several, package):
    with KubeflowServer(State(multi_user=several)) as server:
        client = Kubeflow(server.url, namespace="team-a", sleep=print)
        client.ensure_version(package)
        client.ensure_experiment("geartrain")
        list(client.list_runs())
        asked = [line for line in server.seen if line.startswith("GET") and not re.search("versions|healthz", line)]
        assert asked
        assert {"namespace=team-a" in line for line in asked} == {several}
        assert next(iter(server.state.experiments.values())).get("namespace") == ("team-a" if several else None)
        assert server.count("healthz") == 1


def test_an_unknown_version_is_not_found(client):
    with pytest.raises(NotFoundError):
        client.version("p", "v")
