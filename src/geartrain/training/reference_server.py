"""The credit reference of SGCD-P written by a language model behind any OpenAI-compatible server.

What is sent holds no literal: sibling traces are masked first, and the answer is
masked again before the teacher reads it. A server that fails costs nothing but
its summary: the rules of `reference` take over, and the failure is counted.

Source: SGCD, arXiv:2606.12634; prompt and fall-back: ours.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from geartrain.completions import CompletionError, Server, key_from
from geartrain.training.reference import choose, clause, sanitise, summarise
from geartrain.trajectory import Trajectory

KEY = "GEARTRAIN_REFERENCE_KEY"
"""Environment variable with the server's key, or with `_FILE` the path of it; never a setting, never logged."""
TIMEOUT = 60.0
LIMIT = 1200
"""Characters of an answer that are kept."""
INSTRUCTIONS = (
    "You compare several attempts of one agent at one task. Answer with five short lines: 1. checks that successful "
    "attempts met, 2. good steps that can be reused, 3. steps at which failed attempts went wrong and why, 4. the step "
    "numbers at which attempts part, 5. which values are masked. Name no value of the data."
)


@dataclass
class ServerReference:
    """Asks a server; falls back to rules."""

    url: str
    """Base address, such as http://127.0.0.1:8000/v1."""
    model: str
    failures: Counter[str] = field(default_factory=Counter)
    """What went wrong so far, by kind."""

    def __call__(self, siblings: Sequence[Trajectory]) -> str | None:
        """Return the reference of one group, or None when its outcomes are all alike."""
        rules = summarise(siblings)
        if rules is None:
            return None
        try:
            answer = self._ask(_describe(siblings))
        except CompletionError as error:
            self.failures[error.kind] += 1
            return rules
        if not answer.strip():
            self.failures["empty"] += 1
            return rules
        return sanitise(answer.strip())[:LIMIT]

    def _ask(self, text: str) -> str:
        server = Server(self.url, self.model, key_from(KEY), timeout=TIMEOUT)
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": text}]
        return server.complete(messages, temperature=0).text


def _describe(siblings: Sequence[Trajectory]) -> str:
    parts = []
    for number, trajectory in enumerate(choose(siblings), start=1):
        outcome = "succeeded" if trajectory.success else "failed"
        steps = [f"{i}. {clause(turn)} -> {turn.result.error or 'ok'}" for i, turn in enumerate(trajectory.turns, 1)]
        parts.append(f"Attempt {number} {outcome}:\n" + "\n".join(steps))
    return "\n\n".join(parts)
