"""The gate: each check alone can stop a model, and a stopped model is recorded, not promoted."""

import copy
import json

import pytest
import yaml

from geartrain import artifacts
from geartrain.config import Config, PromotionSection
from geartrain.errors import UserError
from geartrain.stages import promotion


def side(success, **quality):
    rate = {"estimate": success, "low": success - 0.08, "high": success + 0.08}
    values = {"invalid_calls": 0.02, "zero_tool_successes": 0.0, **quality}
    return {"tasks": 120, "episodes": 240, "success": rate, **values}


def comparison(low=0.05):
    gain = {"estimate": low + 0.07, "low": low, "high": low + 0.14, "p_value": 0.001, "minimum_detectable_effect": 0.06}
    return {"before": side(0.3), "after": side(0.42), "gain": gain, "families": []}


@pytest.fixture
def tables():
    splits = {split: {"greedy": comparison(), "sampled": comparison()} for split in ("test", "ood")}
    probes = {"silent": {"episodes": 120, "successes": 0}, "spam": {"episodes": 120, "successes": 0}}
    settings = {"confidence": 0.95, "samples": 2, "temperature": 1.0}
    return {"splits": splits, "probes": probes, "settings": settings}


@pytest.fixture
def folders(tmp_path, tables, monkeypatch):
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "home"))
    policy, evaluation = tmp_path / "policy", tmp_path / "evaluation"
    policy.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "history.jsonl", "credit_after.jsonl"):
        (policy / name).write_text(f"content of {name}")
    parameters = {"policy": {"recipe": "gear_a_sgcd"}, "environment": {"name": "analyst"}}
    inputs = {"tasks": "a" * 64, "warm_start": "b" * 64}
    seal(policy, "policy", inputs, parameters)
    evaluation.mkdir()
    write_tables(evaluation, policy, tables)
    return {"policy": policy, "evaluation": evaluation}, {"promotion": tmp_path / "promoted"}


def seal(folder, stage, inputs, parameters):
    return artifacts.write_manifest(folder, stage=stage, parameters=parameters, inputs=inputs, metrics={})


def write_tables(folder, policy, tables):
    artifacts.write_json(folder / "tables.json", tables)
    seal(folder, "evaluation", {"policy": artifacts.read_manifest(policy).digest}, {})


def judge(tables, **section):
    return {c["name"]: c["passed"] for c in promotion.judge(tables, PromotionSection(**section))}


def test_good_model_passes_every_check(tables):
    assert set(judge(tables).values()) == {True}


@pytest.mark.parametrize(
    ("check", "spoil"),
    [
        ("gain_low", lambda t: t["splits"]["test"]["sampled"]["gain"].update(low=0.0)),
        ("invalid_calls", lambda t: t["splits"]["test"]["greedy"]["after"].update(invalid_calls=0.21)),
        ("invalid_calls", lambda t: t["splits"]["test"]["sampled"]["after"].update(invalid_calls=0.21)),
        ("zero_tool_share", lambda t: t["splits"]["test"]["greedy"]["after"].update(zero_tool_successes=0.06)),
        ("probe_successes", lambda t: t["probes"]["spam"].update(successes=1)),
    ],
)
def test_each_fault_fails_its_own_check_alone(tables, check, spoil):
    spoiled = copy.deepcopy(tables)
    spoil(spoiled)
    assert judge(spoiled) == {**judge(tables), check: False}


def test_an_estimate_above_the_bar_is_not_enough(tables):
    """Noise: the estimate is +5 points, the interval reaches below 0."""
    tables["splits"]["test"]["sampled"]["gain"].update(estimate=0.05, low=-0.01, high=0.11)
    assert judge(tables)["gain_low"] is False


def test_gain_on_other_splits_and_decodings_does_not_count(tables):
    tables["splits"]["test"]["sampled"]["gain"]["low"] = -0.2
    assert judge(tables)["gain_low"] is False


def test_thresholds_are_the_configured_ones(tables):
    assert judge(tables, min_gain=0.06)["gain_low"] is False
    assert judge(tables, max_invalid_calls=0.01)["invalid_calls"] is False
    tables["splits"]["test"]["sampled"]["gain"]["low"] = -0.1
    assert judge(tables, min_gain=-0.2)["gain_low"] is True


def test_nothing_to_measure_fails(tables):
    for decoding in ("greedy", "sampled"):
        tables["splits"]["test"][decoding]["after"]["zero_tool_successes"] = None
    (check,) = [c for c in promotion.judge(tables, PromotionSection()) if c["name"] == "zero_tool_share"]
    assert (check["passed"], check["value"]) == (False, None)
    assert "nothing to measure" in check["reason"]


def test_missing_test_split_is_an_error_that_says_what_to_do(tables):
    del tables["splits"]["test"]
    with pytest.raises(UserError, match=r"tasks\.test"):
        promotion.judge(tables, PromotionSection())


def test_promoted_model_is_copied_with_a_card(folders):
    inputs, outputs = folders
    metrics = promotion.run(Config(), inputs, outputs)
    target = outputs["promotion"]
    assert metrics["promoted"] == 1
    assert sorted(path.name for path in (target / "model").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    decision = json.loads((target / "decision.json").read_text())
    assert decision["promoted"] is True
    assert decision["candidate"] == artifacts.read_manifest(inputs["policy"]).digest
    assert not (target / "candidate.json").exists()
    artifacts.verify(target)


def test_card_is_hugging_face_yaml_and_claims_only_recorded_digests(folders, tables):
    inputs, outputs = folders
    promotion.run(Config(), inputs, outputs)
    card = (outputs["promotion"] / "model" / "README.md").read_text()
    _, header, body = card.split("---\n", 2)
    values = yaml.safe_load(header)["model-index"][0]["results"]
    assert {(v["dataset"]["split"], m["value"]) for v in values for m in v["metrics"]} == {
        ("test", 0.42),
        ("ood", 0.42),
    }
    manifest = artifacts.read_manifest(inputs["policy"])
    for digest in (manifest.digest, *manifest.inputs.values(), artifacts.read_manifest(inputs["evaluation"]).digest):
        assert digest in body
    assert "42.0 % [34.0, 50.0]" in body
    assert "+12.0 points [+5.0, +19.0]" in body
    assert "gear_a_sgcd" in body
    assert "from_pretrained" in body


def test_failed_candidate_is_recorded_and_not_promoted(folders, tables):
    inputs, outputs = folders
    tables["splits"]["test"]["sampled"]["gain"]["low"] = -0.01
    write_tables(inputs["evaluation"], inputs["policy"], tables)
    metrics = promotion.run(Config(), inputs, outputs)
    target = outputs["promotion"]
    assert (metrics["promoted"], metrics["check_gain_low"], metrics["check_invalid_calls"]) == (0, 0, 1)
    assert not (target / "model").exists()
    candidate = json.loads((target / "candidate.json").read_text())
    assert candidate["candidate"] == artifacts.read_manifest(inputs["policy"]).digest
    (reason,) = candidate["reasons"]
    assert "-0.01 is not > 0" in reason
    assert (inputs["policy"] / "model.safetensors").exists()


def test_model_left_by_a_killed_run_is_not_sealed(folders, tables, tmp_path):
    inputs, _outputs = folders
    tables["probes"]["silent"]["successes"] = 3
    write_tables(inputs["evaluation"], inputs["policy"], tables)
    staged = tmp_path / "staged"
    (staged / "model").mkdir(parents=True)
    (staged / "model" / "model.safetensors").write_text("half")
    job = promotion.Job(Config(), inputs, {"promotion": staged}, tmp_path)
    promotion.run.__wrapped__(job)
    assert sorted(path.name for path in staged.iterdir()) == ["candidate.json", "decision.json"]


def test_evaluation_of_another_policy_is_refused(folders):
    inputs, outputs = folders
    (inputs["policy"] / "model.safetensors").write_text("another")
    seal(inputs["policy"], "policy", {}, {})
    with pytest.raises(UserError, match="Run the stage `evaluation` again"):
        promotion.run(Config(), inputs, outputs)


def test_same_inputs_give_the_same_bytes(folders, tmp_path):
    inputs, outputs = folders
    promotion.run(Config(), inputs, outputs)
    promotion.run(Config(), inputs, {"promotion": tmp_path / "again"})
    digests = [artifacts.read_manifest(folder).digest for folder in (outputs["promotion"], tmp_path / "again")]
    assert digests[0] == digests[1]
