"""Demonstrations are rendered as the sampler would have, and trained where asked."""

import pytest

from geartrain.config import TinyModel
from geartrain.datasets.demonstrations import Demonstration, Exchange
from geartrain.models.backbone import Policy, build_policy
from geartrain.models.tokenizer import train_tokenizer
from geartrain.stages.warm_start import tokenize

DEMONSTRATION = Demonstration(
    "t",
    [{"role": "system", "content": "rules"}, {"role": "user", "content": "how many in '2010'?"}],
    [Exchange('{"name": "count"}', "q1: 12", None), Exchange('{"name": "finish"}', "finished", None)],
    True,
)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return build_policy(
        train_tokenizer(DEMONSTRATION.texts(), vocabulary=400), TinyModel(hidden=16, layers=1, heads=2), 0
    )


def spans(policy: Policy, ids: list[int], mask: list[bool]) -> str:
    return policy.tokenizer.decode([i for i, kept in zip(ids, mask, strict=True) if kept])


def test_the_expert_s_messages_are_trained_with_their_ends(policy: Policy) -> None:
    sequence = tokenize(DEMONSTRATION, policy.chat, observations=False)
    text = spans(policy, sequence.ids_T.tolist(), sequence.loss_T.tolist())
    assert text == '{"name": "count"}<|im_end|>{"name": "finish"}<|im_end|>'
    assert sequence.loss_T.tolist() == sequence.action_T.tolist()


def test_tool_results_are_trained_too_where_asked_but_are_no_actions(policy: Policy) -> None:
    plain = tokenize(DEMONSTRATION, policy.chat, observations=False)
    sequence = tokenize(DEMONSTRATION, policy.chat, observations=True)
    assert sequence.ids_T.tolist() == plain.ids_T.tolist()
    assert sequence.action_T.tolist() == plain.action_T.tolist()
    trained = spans(policy, sequence.ids_T.tolist(), sequence.loss_T.tolist())
    assert "q1: 12" in trained
    assert "how many" not in trained


def test_ids_are_those_of_the_whole_conversation(policy: Policy) -> None:
    messages = list(DEMONSTRATION.opening)
    for exchange in DEMONSTRATION.exchanges:
        messages.append({"role": "assistant", "content": exchange.action})
        messages.append({"role": policy.chat.tool_role, "content": exchange.observation})
    ids = tokenize(DEMONSTRATION, policy.chat, observations=False).ids_T.tolist()
    assert policy.chat.full_ids(messages)[: len(ids)] == ids
