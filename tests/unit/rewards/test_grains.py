from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from geartrain.rewards.grains import FAULT_REWARD, step_rewards, token_rewards, total_subgoals, with_grains
from geartrain.rewards.grounding import UNGROUNDED_REWARD, ungrounded
from geartrain.trajectory import Trajectory, Turn


class ByteTokenizer:
    """One token per byte, as the worst split of any byte-level vocabulary; id 256 ends the message."""

    END = 256

    def __init__(self) -> None:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        self._tokenizer = Tokenizer(BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer.add_special_tokens(["<|im_end|>"])

    def encode(self, text: str) -> list[int]:
        return [*self._tokenizer.encode(text).ids, self.END]

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)


@pytest.fixture
def tokenizer() -> ByteTokenizer:
    return ByteTokenizer()


def test_a_turn_earns_its_new_subgoals_once_and_pays_for_an_error(
    episode: Callable[..., Trajectory], turn: Callable[..., Turn]
) -> None:
    turns = [
        turn(subgoals=("a", "b")),
        turn(error="sql_error"),
        turn(subgoals=("a",)),
        turn(subgoals=("c",), error="x"),
    ]
    trajectory = episode(turns=turns, progress=0.75)
    assert step_rewards(trajectory, invalid_call_reward=-0.1) == pytest.approx([0.5, -0.1, 0.0, 0.15])


@pytest.mark.parametrize(
    ("reached", "progress", "total"),
    [
        (2, 0.5, 4),
        (4, 1.0, 4),
        (1, 1 / 7, 7),
        (4, 0.75, 4),  # one of four was lost again
        (3, 0.0, 3),  # all were lost again
        (0, 0.0, 1),
    ],
)
def test_total_follows_from_progress(
    episode: Callable[..., Trajectory], turn: Callable[..., Turn], reached: int, progress: float, total: int
) -> None:
    names = tuple(f"goal {i}" for i in range(reached))
    assert total_subgoals(episode(turns=[turn(subgoals=names)], progress=progress)) == total


@pytest.mark.parametrize(
    ("text", "position"),
    [('{"name" "x"}', 8), ("{", 0), ('{"a": "é"', 7), ('{"a": "é" ?', 10), ("日本語", 1), ("👩‍🔬!", 3)],
)
def test_the_fault_lies_on_the_sampled_token_that_completes_the_character(
    tokenizer: ByteTokenizer, turn: Callable[..., Turn], text: str, position: int
) -> None:
    ids = tokenizer.encode(text)
    rewards = token_rewards(
        turn(action_ids=ids, action_text=text, error="malformed_json", position=position), tokenizer, ""
    )
    assert len(rewards) == len(ids)
    assert rewards.index(FAULT_REWARD) == len(text[: position + 1].encode()) - 1
    assert sum(rewards) == FAULT_REWARD


def test_a_message_that_ended_too_soon_is_charged_to_the_token_that_ended_it(
    tokenizer: ByteTokenizer, turn: Callable[..., Turn]
) -> None:
    text = '{"name": "finish"'
    ids = tokenizer.encode(text)
    rewards = token_rewards(
        turn(action_ids=ids, action_text=text, error="malformed_json", position=len(text)), tokenizer, ""
    )
    assert rewards[-1] == FAULT_REWARD
    assert ids[-1] == tokenizer.END


def test_the_tokens_of_a_name_that_was_never_read_are_charged(
    tokenizer: ByteTokenizer, episode: Callable[..., Trajectory], turn: Callable[..., Turn]
) -> None:
    message = "{\"sql\": \"WHERE a = 'Brasil' AND b = 'Łódź' AND c = 'USA'\"}"
    shown = "In Brazil and in łódź, what did the usa buy?"
    say = {"action_ids": tokenizer.encode(message), "action_text": message}
    first = turn(prompt_ids=tokenizer.encode(shown), **say)
    second = turn(prompt_ids=tokenizer.encode("q1: Brasil"), **say)
    before, after = with_grains(episode(turns=[first, second]), tokenizer, invalid_call_reward=0.0).turns
    start = len(message[: message.index("Brasil")].encode())
    assert [i for i, x in enumerate(before.token_rewards) if x] == list(range(start, start + len("Brasil")))
    assert set(before.token_rewards) == {0.0, UNGROUNDED_REWARD}
    assert after.token_rewards == ()  # by now it has read the name


def test_a_fault_weighs_more_than_a_name_that_was_never_read(
    tokenizer: ByteTokenizer, turn: Callable[..., Turn]
) -> None:
    message = "= 'Brasil'"
    said = turn(action_ids=tokenizer.encode(message), action_text=message, error="sql_error", position=4)
    rewards = token_rewards(said, tokenizer, "brazil")
    assert rewards[3:9] == (*[UNGROUNDED_REWARD], FAULT_REWARD, *[UNGROUNDED_REWARD] * 4)


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("= '2010-03'", []),
        ("LIKE '%Rock%'", ["%Rock%"]),
        ("= 'O''Hara'", ["O''Hara"]),
        ("= 'ab'", []),
        ("= 'São Paulo' OR 'Rio'", ["São Paulo", "Rio"]),
        ("it's \"one\" or 'two'", ["two"]),
        ("'unclosed", []),
    ],
)
def test_only_quoted_names_are_literals(message: str, names: list[str]) -> None:
    assert [message[start:stop] for start, stop in ungrounded(message, "")] == names
    assert ungrounded(message, message.casefold().replace("''", "'")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"error": "sql_error", "position": None},
        {"error": None, "position": 3},
        {"error": "malformed_json", "position": -1},
        {"error": "malformed_json", "position": 0, "action_text": "not what the ids say"},
        {"error": "malformed_json", "position": 0, "action_ids": []},
    ],
)
def test_nothing_known_is_nothing_charged(
    tokenizer: ByteTokenizer, turn: Callable[..., Turn], fields: dict[str, object]
) -> None:
    sampled = {"action_ids": tokenizer.encode("{ }"), "action_text": "{ }"}
    assert token_rewards(turn(**{**sampled, **fields}), tokenizer, "") == ()


def test_filling_grains_keeps_the_sampled_ids(
    tokenizer: ByteTokenizer, episode: Callable[..., Trajectory], turn: Callable[..., Turn]
) -> None:
    # Ids that no tokenizer would choose for this text: they must come back as they were.
    odd = [*tokenizer.encode("ab")[:-1], *tokenizer.encode("c")]
    before = episode(turns=[turn(action_ids=odd, action_text="abc", error="no_call", position=2), turn()])
    after = with_grains(before, tokenizer, invalid_call_reward=-0.1)
    assert after.token_ids() == before.token_ids()
    assert after.turns[0].token_rewards == (0.0, 0.0, FAULT_REWARD, 0.0)
    assert [t.reward for t in after.turns] == [-0.1, 0.0]
