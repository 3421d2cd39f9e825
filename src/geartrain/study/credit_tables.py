"""Tables of how credit was given: weights in training, phases, successes against failures, exact advantages.

A section is left out where no variant has anything to say, and a number that a cell did not measure is blank.
"""

from collections.abc import Iterator, Mapping

from geartrain.study.markdown import Table, number, spread
from geartrain.study.outcomes import MOMENTS, OUTCOMES
from geartrain.wording import table

WEIGHTS = {
    "weight_p05": "weight, 5 %",
    "weight_p95": "weight, 95 %",
    "weight_advantage": "with advantage",
    "weight_reward": "with own reward",
    "weight_ratio_better": "with ratio, better",
    "weight_ratio_worse": "with ratio, worse",
    "teacher_ratio": "ratio to the teacher",
    "teacher_ratio_spread": "its spread",
    "credit_later": "credit with later reward",
}
PHASES = ("plan_success", "do_success", "entropy_plan", "entropy_do")
PHASE_BANDS = {"plan_success": "plan: success in training", "do_success": "do: success in training"}
CREDITED = {
    "credit_p05": "credit, 5 %",
    "credit_median": "median",
    "credit_p95": "95 %",
    "weight_p05": "weight, 5 %",
    "weight_p95": "95 %",
    "largest": "largest",
    "parting": "where siblings part",
    "critic": "critic's score",
}
CRITIC = {
    "correlation": "with its labels",
    "correlation_contrast": "with those that siblings contradict",
    "correlation_outcome": "with the outcome",
    "correlation_shuffled": "after training on shuffled labels",
}
SCORES = ("rank_correlation", "sign_agreement", "key_recall", "weight", "credited", "granularity", "coarser")
Variants = Mapping[str, Table]


def weights(variants: Variants) -> Iterator[str]:
    """Yield the section about W in training."""
    yield "### Weights in training"
    rows = [[f"`{v}`", *(number(row["training"].get(k)) for k in WEIGHTS)] for v, row in variants.items()]
    yield table(["variant", *WEIGHTS.values()], rows)


def phases(variants: Variants) -> Iterator[str]:
    """Yield the section about phases, of an environment that has some."""
    if not any(row["phases"] or row["phase_bands"] for row in variants.values()):
        return
    yield "### Planning and doing, in the sampled test episodes and over the training"
    head = ["variant", *(name.replace("_", ": ") for name in PHASES), *PHASE_BANDS.values()]
    rows = [
        [
            f"`{v}`",
            *(number(row["phases"].get(k)) for k in PHASES),
            *(_from_to(row["phase_bands"].get(k)) for k in PHASE_BANDS),
        ]
        for v, row in variants.items()
    ]
    yield table(head, rows)


def outcomes(variants: Variants, critic: Table) -> Iterator[str]:
    """Yield the section about successes and failures; `critic` has the correlations of the critic on held-out tasks."""
    rows = [
        [f"`{v}`", moment, outcome, number(found["turns"]), *(number(found[k]) for k in CREDITED)]
        for v, row in variants.items()
        for moment in MOMENTS
        for outcome in OUTCOMES
        if (found := row["outcomes"].get(moment, {}).get(outcome)) is not None
    ]
    if rows or critic:
        yield "### Credit of successes and failures"
    if critic:
        known = [
            f"{spread(critic[name]).replace(' %', '')} {words}" for name, words in CRITIC.items() if name in critic
        ]
        yield f"Correlation of the sibling critic on held-out tasks, times 100: {', '.join(known)}."
    if rows:
        yield table(["variant", "when", "outcome", "turns", *CREDITED.values()], rows)


def exact_credit(variants: Variants) -> Iterator[str]:
    """Yield the section about credit against exact advantages, where these are known."""
    if not any(row["credit"] for row in variants.values()):
        return
    yield "### Credit of single turns against their exact advantage"
    head = ["variant", "when", "phase", "turns", "rank", "sign", "key steps", "weight", "turns with credit"]
    rows = [
        [f"`{v}`", moment, phase, f"{score['steps'] or 0:.0f}", *(number(score[k]) for k in SCORES)]
        for v, row in variants.items()
        for moment, found in sorted(row["credit"].items(), reverse=True)
        for phase, score in found.items()
    ]
    yield table([*head, "granularity", "planning coarser"], rows)


def _from_to(band: Table | None) -> str:
    return "" if band is None else f"{100 * band['mean'][0]:.1f} to {100 * band['mean'][-1]:.1f} %"
