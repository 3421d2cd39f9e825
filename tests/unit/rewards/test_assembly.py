"""The section `policy.tools`: nothing by default, mistakes are named, no secret is a setting."""

import pytest

from geartrain.config import Config, parse_config
from geartrain.errors import UserError
from geartrain.rewards.assembly import assemble
from geartrain.rewards.rules import RULES as RULE_TABLE
from geartrain.rewards.toolbox import built_in
from geartrain.tools_section import METRICS, NAMES, RULES, ToolsSection

JUDGE = {"GEARTRAIN_JUDGE_URL": "http://127.0.0.1:9/v1", "GEARTRAIN_JUDGE_KEY": "open-sesame"}


def test_by_default_no_tool_is_asked_and_nothing_is_written(tmp_path):
    panel = assemble(Config().policy.tools, iterations=10, audit=tmp_path / "audit.jsonl", environment={})
    assert (list(panel.tools), panel.audit, panel.seconds) == ([], None, None)
    assert list(tmp_path.iterdir()) == []


def test_every_name_of_the_section_is_a_tool():
    assert tuple(RULE_TABLE) == RULES
    assert {tool.name for tool in built_in()} == {"verified", *RULES, *METRICS}
    everything = ToolsSection(weights=dict.fromkeys(NAMES, 0.1))
    assert [tool.name for tool in assemble(everything, environment=JUDGE).tools] == list(NAMES)


def test_a_panel_is_what_is_asked_for(tmp_path):
    section = ToolsSection(
        weights={"length": 0.0, "exact": 0.2},
        families={"total": {"exact": 0.5, "learned": 0.0}},
        phases=[{"start": 0.5, "weights": {"learned": 0.05}}],
        seconds=3,
    )
    panel = assemble(section, iterations=10, audit=tmp_path / "audit.jsonl", environment={})
    assert panel.seconds == 3
    assert panel.weights.of("exact", family="total", share=0.0) == 0.5
    assert panel.weights.of("learned", family="other", share=0.6) == 0.05
    panel.audit.close()


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ({"weights": {"lenght": 0.1}}, "no tool 'lenght'"),
        ({"weights": {"length": -1}}, "weights.length"),
        ({"weights": {"length": float("nan")}}, "weights.length"),
        ({"families": {"f": {"exact": 0.1}}}, "name it in weights too"),
        ({"phases": [{"start": 0.5, "weights": {}}, {"start": 0.1, "weights": {}}]}, "in the order of their start"),
        ({"phases": [{"start": 2, "weights": {}}]}, "phases.0.start"),
        ({"judge": {"key": "sesame"}}, "unknown key"),
        ({"seconds": float("inf")}, "seconds"),
        ({"judge": {"timeout": float("inf")}}, "judge.timeout"),
    ],
)
def test_a_mistake_is_named(tools, reason):
    with pytest.raises(UserError, match=reason):
        parse_config({"policy": {"tools": tools}}, source="params.yaml")


def test_a_judge_without_an_address_is_refused_and_its_key_is_never_shown(tmp_path):
    section = ToolsSection(weights={"judge": 0.1})
    with pytest.raises(UserError, match="GEARTRAIN_JUDGE_URL"):
        assemble(section, environment={})
    with pytest.raises(UserError, match="address") as caught:
        assemble(section, environment={**JUDGE, "GEARTRAIN_JUDGE_URL": "http://me:open-sesame@host/v1"})
    assert "sesame" not in str(caught.value)
    assert "sesame" not in repr(assemble(section, environment=JUDGE))
