"""The nodes of a run as Kubeflow Pipelines 2.17 lists them: Argo's, without messages, linked by Argo's ids.

From the server's sources: a node's `pod_name` is workflow, template and number; a child is named by the id of its
Argo node, workflow and number; `task_id` is Kubeflow's own; an end that has not come is the year 1.
"""

import itertools
import uuid
from datetime import UTC, datetime, timedelta

FLOW = "geartrain-x7k2p"
START = datetime(2026, 11, 30, 2, 0, tzinfo=UTC)
UNSET = "0001-01-01T00:00:00Z"


def at(minutes):
    return START + timedelta(minutes=minutes)


def stamp(minutes):
    return UNSET if minutes is None else at(minutes).isoformat().replace("+00:00", "Z")


def pod(number):
    """The name of the pod of an attempt."""
    return f"{FLOW}-system-container-impl-{number}"


def nodes(*tasks):
    """(name, start in minutes, states of the attempts) of each task, in a chain; returns (nodes, {name: pods})."""
    made, pods, numbers = [], {}, itertools.count(1000)

    def node(name, template, state, started, ended, children, number=None):
        number = next(numbers) if number is None else number
        made.append(
            {
                "run_id": "r1",
                "task_id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name}{number}")),
                "display_name": name,
                "start_time": stamp(started),
                "end_time": stamp(ended),
                "state": state,
                "pod_name": FLOW if template is None else f"{FLOW}-{template}-{number}",
                "child_tasks": [{"pod_name": f"{FLOW}-{child}"} for child in children],
            }
        )

    drivers = [2000 + 10 * index for index in range(len(tasks))]
    node(FLOW, None, "RUNNING", 0, None, [1, 2])
    node("root-driver", "system-dag-driver", "SUCCEEDED", 0, 1, [2], number=1)
    node("root", "root", "RUNNING", 0, None, drivers[:1], number=2)
    for index, (name, start, states) in enumerate(tasks):
        driver, following = drivers[index], drivers[index + 1 : index + 2]
        tries = [driver + 3 + attempt for attempt in range(len(states))]
        final, ended = states[-1], None if states[-1] == "RUNNING" else start + 9
        node(f"{name}-driver", "system-container-driver", "SUCCEEDED", start, start, [driver + 1], number=driver)
        node(name, "system-container-executor", final, start, ended, [driver + 2], number=driver + 1)
        below = [*tries, *following] if len(tries) > 1 else following
        template = "retry-system-container-impl" if len(tries) > 1 else "system-container-impl"
        node("executor", template, final, start, ended, below, number=driver + 2)
        pods[name] = [pod(number) for number in tries] if len(tries) > 1 else [pod(driver + 2)]
        for attempt, (number, state) in enumerate(zip(tries, states, strict=True)):
            if len(tries) > 1:
                node(f"executor({attempt})", "system-container-impl", state, start + attempt, ended, [], number=number)
    return made, pods
