"""The gate: each check alone can stop a model, and a stopped model is recorded, not promoted."""

import copy
import json
import re

import pytest
import yaml

from geartrain import artifacts
from geartrain.config import Config, PromotionSection
from geartrain.errors import UserError
from geartrain.lineage.events import read_events
from geartrain.stages import promotion
from geartrain.stages.stage import event_log
from geartrain.supply import attestation, mlflow_registry, sbom, signing
from geartrain.supply.registration import LATER
from tests.fakes.promoted import image_packages


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
    monkeypatch.setattr(sbom, "OF_THE_IMAGE", image_packages(tmp_path / "image.json"))
    for variable in (signing.KEY, LATER, mlflow_registry.ADDRESS):
        monkeypatch.delenv(variable, raising=False)
    policy, evaluation = tmp_path / "policy", tmp_path / "evaluation"
    policy.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "history.jsonl", "credit_after.jsonl"):
        (policy / name).write_text(f"content of {name}")
    parameters = {"policy": {"recipe": "gear_a_sgcd"}, "environment": {"name": "analyst"}}
    inputs = {"tasks": "a" * 64, "warm_start": "b" * 64}
    seal(policy, "policy", inputs, parameters, {"c" * 64: "environment.source", "d" * 64: "collect"})
    evaluation.mkdir()
    write_tables(evaluation, policy, tables)
    return {"policy": policy, "evaluation": evaluation}, {"promotion": tmp_path / "promoted"}


def seal(folder, stage, inputs, parameters, ancestors=None):
    known = {"parameters": parameters, "inputs": inputs, "ancestors": ancestors}
    return artifacts.write_manifest(folder, stage=stage, metrics={}, **known)


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


def card(target):
    """The card's head, and its text."""
    _, head, body = (target / "model" / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), body


def leaves(value):
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [value] if isinstance(value, int | float) else []


def test_every_digest_that_the_card_names_is_of_something_that_made_the_model(folders):
    inputs, outputs = folders
    promotion.run(Config(), inputs, outputs)
    head, body = card(outputs["promotion"])
    policy, evaluation = (artifacts.read_manifest(inputs[name]) for name in ("policy", "evaluation"))
    known = {policy.digest, policy.code, evaluation.digest, *artifacts.origins(policy)}
    named = re.findall(r"[0-9a-f]{64}", body)
    assert set(named) == known
    assert head["datasets"] == [
        f"{name}@sha256:{digest * 64}"
        for name, digest in (("environment.source", "c"), ("tasks", "a"), ("collect", "d"))
    ]
    assert {name.rpartition(":")[2] for name in head["datasets"]} < known


def test_every_number_of_the_card_is_the_evaluation_s(folders, tables):
    inputs, outputs = folders
    promotion.run(Config(), inputs, outputs)
    head, body = card(outputs["promotion"])
    values = head["model-index"][0]["results"]
    found = {(v["dataset"]["split"], m["name"].split()[-1]): m["value"] for v in values for m in v["metrics"]}
    assert found == {
        (split, decoding): table["after"]["success"]["estimate"]
        for split, decodings in tables["splits"].items()
        for decoding, table in decodings.items()
    }
    measured = leaves(tables["splits"])
    written = {f"{100 * value:.1f}" for value in measured} | {f"{value:.4f}" for value in measured}
    written |= {f"{100 * (1 - tables['splits']['test']['sampled']['after']['success']['estimate']):.1f}"}
    results = body[body.index("| split |") : body.index("## Why")]
    numbers = re.findall(r"\d+\.\d+", results + body[body.index("## Limits") :])
    assert len(numbers) > 40
    assert set(numbers) <= written
    assert "42.0 % [34.0, 50.0]" in results
    assert "+12.0 points [+5.0, +19.0]" in results


def test_the_card_says_licence_name_and_base_model(folders, tables):
    inputs, outputs = folders
    promotion.run(Config(), inputs, outputs)
    head, body = card(outputs["promotion"])
    assert (head["license"], head["model-index"][0]["name"]) == ("apache-2.0", "geartrain-analyst")
    assert "base_model" not in head
    assert "from random weights" in body
    assert "gear_a_sgcd" in body
    assert "from_pretrained" in body
    model = {"kind": "pretrained", "path": "data/raw/smollm2-135m-instruct.gguf"}
    seal(inputs["policy"], "policy", {}, {"model": model, "environment": {"name": "analyst"}})
    write_tables(inputs["evaluation"], inputs["policy"], tables)
    section = PromotionSection(model_name="support-agent", license="llama3.2")
    promotion.run(Config(promotion=section), inputs, outputs)
    head, body = card(outputs["promotion"])
    assert (head["license"], head["model-index"][0]["name"]) == ("llama3.2", "support-agent")
    assert head["base_model"] == "smollm2-135m-instruct"
    assert "from the pretrained model `smollm2-135m-instruct`" in body


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


def test_a_promoted_model_is_signed_where_there_is_a_key_and_its_digest_is_the_same(
    folders, tmp_path, monkeypatch, capsys
):
    inputs, outputs = folders
    promotion.run(Config(), inputs, outputs)
    assert "promotion: the model is not signed" in capsys.readouterr().err
    private, public, key_id = signing.generate(tmp_path / "keys")
    monkeypatch.setenv(signing.KEY, str(private))
    promotion.run(Config(), inputs, {"promotion": tmp_path / "signed"})
    assert f"signed with the key {key_id[:12]}" in capsys.readouterr().err
    found = attestation.verify(tmp_path / "signed", public)
    assert found.digest == artifacts.read_manifest(outputs["promotion"]).digest
    assert {"environment.source", "collect", "policy", "evaluation", "tasks"} <= found.dependencies.keys()


def test_what_cannot_be_signed_or_registered_as_asked_is_not_promoted(folders, tmp_path, monkeypatch):
    inputs, outputs = folders
    for section, said in (({"require_signature": True}, "no key to sign"), ({"registries": ["mlflow"]}, "MLFLOW")):
        with pytest.raises(UserError, match=said):
            promotion.run(Config(promotion=section), inputs, outputs)
        assert not outputs["promotion"].exists()
        assert read_events(event_log())[-1]["eventType"] == "FAIL"
    monkeypatch.setenv(LATER, "1")
    promotion.run(Config(promotion={"registries": ["mlflow"]}), inputs, outputs)  # Kubeflow's step `register` does it
    assert outputs["promotion"].exists()
