"""What a failure means, from the little that Kubeflow and a log say of it."""

import traceback

import pytest

from geartrain.cluster.failures import evidence, explain
from geartrain.errors import InfrastructureError, QueueError, UserError

FATAL = "F1130 02:20:00.000000      42 main.go:49] "


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("UserError: mend this (exit status 1)", "user"),
        ("InfrastructureError: disk (exit status 1)", "infrastructure"),
        ("QueueError: two hours (exit status 1)", "infrastructure"),
        ("(exit status 2)", "user"),
        ("(exit status 75)", "infrastructure"),
        ("main: Error (exit code 76)", "infrastructure"),
        ("ConnectionError: connection refused (exit status 2)", "user"),  # the stage knows better than the words
        ("OOMKilled (exit code 137)", "user"),
        ("(signal: killed)", "user"),
        ("main: Error (exit code 137)", "infrastructure"),
        ("(signal: terminated)", "infrastructure"),
        ("pod deleted", "infrastructure"),
        ("The node was low on resource: ephemeral-storage. Evicted", "infrastructure"),
        ("Back-off: ImagePullBackOff", "user"),
        ("exceeded quota: geartrain", "infrastructure"),
        ("KeyError: 'x' (exit status 1)", "fault"),
        ("main: Error (exit code 1)", "fault"),
        ("", "fault"),
    ],
)
def test_what_a_message_means(message: str, kind: str) -> None:
    reason = explain("policy", message)
    assert reason.kind == kind
    assert reason.hint


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UserError("params.yaml: 2 problem(s)\n  seed: wrong"), "user"),
        (InfrastructureError("bucket does not answer"), "infrastructure"),
        (QueueError("waited 2 h"), "infrastructure"),
        (ZeroDivisionError("division by zero"), "fault"),
    ],
)
def test_a_traceback_in_a_log_is_read_to_its_last_line(error: Exception, kind: str) -> None:
    try:
        raise error
    except type(error):
        told = traceback.format_exc()
    log = f"step 1\n{told}I1130 launcher_v2.go:151] publish\n{FATAL}failed to execute component: exit status 1\n"
    found = evidence(log)
    assert found == f"{type(error).__name__}: {str(error).splitlines()[0]} (exit status 1)"
    assert explain("policy", found).kind == kind


def test_what_our_command_line_says_counts_too() -> None:
    log = f"error: models/policy: no such folder\n{FATAL}failed to execute component: exit status 2\n"
    assert evidence(log) == "models/policy: no such folder (exit status 2)"


def test_the_last_error_counts_and_a_launcher_of_its_own_fault_is_quoted() -> None:
    assert evidence("ValueError: first\nretrying\nOSError: second\n") == "OSError: second"
    refused = "failed to create task: rpc error: code = Unavailable desc = connection refused"
    assert evidence(f"{FATAL}failed to execute component: {refused}\n") == f"failed to execute component: {refused}"
    assert explain("policy", evidence(f"{FATAL}{refused}\n")).kind == "infrastructure"


@pytest.mark.parametrize("log", ["", "all went well\n", "x" * 100_000])
def test_a_log_may_say_nothing(log: str) -> None:
    assert evidence(log) == ""


def test_driver_failures_are_no_fault_of_the_task() -> None:
    assert explain("policy-driver", "").kind == "infrastructure"
