"""Messages to token ids, without ever rendering a sampled message again.

The next prompt of an episode is the old ids plus a suffix that is rendered by
itself: what the chat template puts after an assistant message, the tool's
answer, and the header of the next assistant message. The suffix is found by
rendering a conversation whose assistant message is a marker and keeping what
follows the marker, so it holds for any chat template.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from geartrain.errors import UserError

_MARK = "geartrain0marker0of0an0assistant0message"
_PROBE = "geartrain0marker0of0a0tool0result"

Message = Mapping[str, str]


@dataclass(frozen=True)
class ChatFormat:
    """How a tokenizer writes a conversation. Build it with `chat_format`."""

    tokenizer: Any
    """A Hugging Face tokenizer with a chat template."""
    end_id: int
    """The token that ends an assistant message: the only stop of the sampler."""
    tool_role: str
    """Role of tool results: "tool", or "user" where the template knows no tools."""
    special: tuple[str, ...]
    """Texts that the tokenizer would read as control tokens."""

    def opening_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of the first messages and of the header that invites the assistant to speak.

        Raises UserError if the chat template refuses the roles.
        """
        return self._encode(self._render([*map(self._plain, messages)], invite=True))

    def shared_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the start of `opening_ids` that does not depend on the last message's content."""
        ids = self.opening_ids(messages)
        other = self.opening_ids([*messages[:-1], {**messages[-1], "content": _PROBE}])
        return common_start(ids, other)

    def observation_ids(self, text: str, *, ended: bool = True) -> list[int]:
        """Return what follows a sampled assistant message: a tool's answer and the next assistant header.

        Arguments:
            text: what the tool answered; control tokens in it are written as plain text.
            ended: whether the message's last sampled id was `end_id`. If not (it was
                cut off), the suffix begins with the end of the turn, as prompt ids.
        """
        answer = self._plain({"role": self.tool_role, "content": text})
        before = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _MARK}]
        rendered = self._render([*before, answer], invite=True)
        ids = self._encode(rendered[rendered.index(_MARK) + len(_MARK) :])
        return ids[ids.index(self.end_id) + 1 :] if ended else ids

    def action_ids(self, text: str) -> list[int]:
        """Return the canonical ids of an assistant message, `end_id` included."""
        return [*self._encode(self._plain({"content": text})["content"]), self.end_id]

    def action_text(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled message, without the `end_id` that closes it."""
        body = ids[:-1] if ids and ids[-1] == self.end_id else ids
        text = self.tokenizer.decode(list(body), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)

    def full_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a whole conversation, rendered at once (for checks; never for sampled ids)."""
        return self._encode(self._render([*map(self._plain, messages)], invite=False))

    def _plain(self, message: Message) -> dict[str, str]:
        """Return the message with control tokens broken up, so that text cannot forge a turn."""
        content = message["content"]
        for token in self.special:
            if token in content:
                content = content.replace(token, token[:1] + " " + token[1:])
        return {**message, "content": content}

    def _render(self, messages: list[dict[str, str]], *, invite: bool) -> str:
        return _render(self.tokenizer, messages, invite=invite)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def common_start(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """Return the longest common prefix."""
    pairs = zip(left, right, strict=False)
    count = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
    return list(left[:count])


def chat_format(tokenizer: Any, source: str) -> ChatFormat:
    """Study a tokenizer's chat template.

    `source` names the tokenizer in errors. Raises UserError if there is no chat
    template or if it closes an assistant message with no single token.
    """
    if not tokenizer.chat_template:
        raise UserError(
            f"{source}: the tokenizer has no chat template. Use an instruction-tuned model, "
            "or put a chat_template.jinja file into the folder."
        )
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    special = tuple(sorted(added | set(tokenizer.all_special_tokens)))
    user, assistant = {"role": "user", "content": "x"}, {"role": "assistant", "content": _MARK}
    rendered = _render(tokenizer, [user, assistant], invite=False)
    if _MARK not in rendered:
        raise UserError(f"{source}: the chat template does not show the assistant's message, so no turn can follow it.")
    tail = tokenizer.encode(rendered[rendered.index(_MARK) + len(_MARK) :], add_special_tokens=False)
    closing = [i for i in tail if i == tokenizer.eos_token_id] or [i for i in tail if i in tokenizer.all_special_ids]
    if not closing:
        raise UserError(
            f"{source}: the chat template closes an assistant message with no EOS token (it writes "
            f"{tokenizer.decode(tail)!r}), so the sampler could not tell where a message ends. "
            "Set eos_token in tokenizer_config.json to the template's end-of-turn token."
        )
    return ChatFormat(tokenizer, closing[0], _tool_role(tokenizer, [user, assistant]), special)


def _tool_role(tokenizer: Any, before: list[dict[str, str]]) -> str:
    try:
        rendered = _render(tokenizer, [*before, {"role": "tool", "content": _PROBE}], invite=True)
    except UserError:
        return "user"
    return "tool" if _PROBE in rendered else "user"


def _render(tokenizer: Any, messages: list[dict[str, str]], *, invite: bool) -> str:
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=invite))
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        roles = ", ".join(message["role"] for message in messages)
        raise UserError(f"the chat template refuses a conversation of {roles}: {error}") from error
