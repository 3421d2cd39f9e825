"""Lines of a stage `policy` as a run emits them; small, and every number is chosen."""

RUN = "11111111-2222-3333-4444-555555555555"


def begin(time=100.0, **fields):
    known = {
        "stage": "policy",
        "key": "k" * 64,
        "pid": 1,
        "run": RUN,
        "dataset": "d" * 64,
        "image": None,
        "commit": "c",
    }
    parameters = {"policy": {"recipe": "gear_a", "iterations": 9}}
    return {"time": time, "kind": "begin", **known, "parameters": parameters, **fields}


def iteration(index=0, time=110.0, *, seconds=None, tokens=None, ranks=(), **record):
    told = {
        "seconds": {"play": 2.0, "train": 1.0, "validate": 0.5, "judge": 0.25} if seconds is None else seconds,
        "tokens": {"played": 400, "trained": 100} if tokens is None else tokens,
    }
    record = {"iteration": index, **record}
    return {"time": time, "kind": "iteration", "index": index, "ranks": ranks, **told, "record": record}


def end(time=200.0, outcome="complete", **fields):
    return {"time": time, "kind": "end", "outcome": outcome, "reason": None, **fields}
