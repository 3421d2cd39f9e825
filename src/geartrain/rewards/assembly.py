"""From the section `policy.tools` to the tools themselves."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from geartrain.completions import Server, key_from
from geartrain.errors import UserError
from geartrain.rewards.audit import AuditLog
from geartrain.rewards.judge import Judge, JudgePairs, JudgeScores
from geartrain.rewards.metrics import METRICS, Metric
from geartrain.rewards.panel import Panel
from geartrain.rewards.toolbox import built_in, pairs_tool, scores_tool
from geartrain.rewards.tools import Tool
from geartrain.rewards.verdicts import RUBRIC, Example
from geartrain.rewards.weights import Phase, Weights
from geartrain.tools_section import JudgeSection, ToolsSection

URL, KEY = "GEARTRAIN_JUDGE_URL", "GEARTRAIN_JUDGE_KEY"
"""Environment variables with the judge's address and key; `$GEARTRAIN_JUDGE_KEY_FILE` names a file with the key."""


def assemble(
    section: ToolsSection,
    *,
    iterations: int = 1,
    audit: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Panel:
    """Return the panel that a configuration asks for; `audit` is the file of its record, if it names any tool.

    Raises:
        UserError: a library or the judge's address is missing; or another process writes the record.
    """
    phases = [Phase(phase.start, phase.weights) for phase in section.phases]
    keeps = audit is not None and bool(section.weights) and section.audit_megabytes > 0
    return Panel(
        tools=choose(section, environment=environment),
        weights=Weights(section.weights, section.families, phases),
        iterations=iterations,
        seconds=section.seconds,
        audit=AuditLog(audit, megabytes=section.audit_megabytes) if keeps and audit is not None else None,
    )


def choose(section: ToolsSection, *, environment: Mapping[str, str] = os.environ) -> list[Tool]:
    """Return the tools that a configuration names, in its order, ready to be asked. Raises UserError as `assemble`."""
    known, judge = built_in(), None
    tools = []
    for name in section.weights:
        if name in section.judges:
            judge = judge or find_judge(section.judge, environment)
            if judge is None:
                raise UserError(f"policy.tools.weights: {name} needs a server. Set ${URL} to its address.")
            scores = JudgeScores(judge, shows_reference=section.judge.shows_reference)
            tools.append(scores_tool(scores) if name == JudgeScores.name else pairs_tool(JudgePairs(judge)))
        elif name in METRICS:
            tools.append(replace(known[name], channel=Metric.loaded(name)))
        else:
            tools.append(known[name])
    return tools


def find_judge(section: JudgeSection, environment: Mapping[str, str] = os.environ) -> Judge | None:
    """Return the judge whose address the environment holds, or None. Raises UserError for an impossible address."""
    url = environment.get(URL, "").strip()
    if not url:
        return None
    key = key_from(KEY, environment)
    try:
        server = Server(url, section.model, key, timeout=section.timeout, tries=section.tries)
    except ValueError as error:
        raise UserError(f"${URL}: {error}") from error
    examples = tuple(Example(e.task, e.answer, e.score, e.why) for e in section.examples)
    return Judge(
        server,
        rubric=section.rubric or RUBRIC,
        examples=examples,
        samples=section.samples,
        price_in=section.price_in,
        price_out=section.price_out,
    )
