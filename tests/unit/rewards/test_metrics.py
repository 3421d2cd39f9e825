"""Metrics: the libraries' own numbers, a declared normalisation, and no number where there is no reference."""

import sys

import pytest

from geartrain.environments.environment import Task
from geartrain.errors import UserError
from geartrain.rewards.channel import ask
from geartrain.rewards.metrics import LONGEST, METRICS, Metric, exact_measure, normalised
from geartrain.rewards.outcome import Failed, NotApplicable
from geartrain.rewards.reading import spoken

REFERENCE = "The order was sent on Monday and arrived in Lyon on Friday."


def build_task(reference=REFERENCE):
    return Task("t", "text", "f", "test", "When?", "", 1, {} if reference is None else {"reference": reference})


@pytest.mark.parametrize(
    ("name", "close", "far"),
    [("bleu", 0.5, 0.1), ("chrf", 0.6, 0.3), ("rouge", 0.7, 0.3)],
)
def test_a_metric_is_1_on_the_reference_and_falls_with_distance(name, close, far):
    metric, task = Metric(name, METRICS[name]), build_task()
    texts = [REFERENCE, "The order was sent on Monday and came to Lyon on Friday.", "A cat sleeps.", ""]
    same, near, other, nothing = (o.value for o in metric.score([spoken(task, t) for t in texts], {"t": task}))
    assert same == pytest.approx(1.0)
    assert same > near > close > far > other
    assert nothing == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1,200.0", "$1200"),
        ("  Paris. ", "paris"),
        ("\uff11\uff12", "12"),
        ('"Yes"', "yes"),
        ("-3", "-3.00"),
        ("50%", "50 %"),
        ("1 200", "1200"),
    ],
)
def test_equal_after_the_declared_normalisation(one, other):
    assert exact_measure()(one, other) == 1.0


@pytest.mark.parametrize(
    ("one", "other"), [("12", "12.5"), ("12", "-12"), ("12 or 13", "12"), ("", "0"), ("no", "yes"), ("1e3", "1000")]
)
def test_not_equal(one, other):
    assert exact_measure()(one, other) == 0.0
    assert normalised(one) != normalised(other)


def test_without_reference_it_does_not_apply_and_too_long_an_answer_fails(episode):
    metric = Metric("exact", METRICS["exact"])
    for reference in (None, "", " "):
        task = build_task(reference)
        assert metric.score([spoken(task, "x")], {"t": task}) == [NotApplicable("no_reference")]
    task = build_task()
    assert metric.score([episode()], {"t": task}) == [NotApplicable("no_words_handed_in")]
    (found,) = metric.score([spoken(task, "x" * (LONGEST + 1))], {"t": task})
    assert isinstance(found, Failed)
    assert metric.score([episode("other")], {}) == [Failed("unknown_task", "other")]


@pytest.mark.parametrize(("name", "package"), [("bleu", "sacrebleu"), ("chrf", "sacrebleu"), ("rouge", "rouge_score")])
def test_a_library_that_is_not_there_is_named_and_costs_no_zero(monkeypatch, name, package):
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"geartrain\[metrics\]"):
        METRICS[name]()
    (found,) = ask(Metric(name, METRICS[name]), [spoken(build_task(), "x")], {"t": build_task()})
    assert found.reason == "raised_UserError"
