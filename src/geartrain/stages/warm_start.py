"""Stage `warm_start`: tokenizer, model and supervised start from demonstrations of a flawed expert."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geartrain.artifacts import write_atomically
from geartrain.config import Config, TinyModel
from geartrain.datasets.demonstrations import Demonstration, demonstrate_all
from geartrain.datasets.task_sets import read_tasks
from geartrain.environments import load_environment
from geartrain.errors import UserError
from geartrain.models.backbone import ChatFormat, Policy, build_policy, load_policy, save_policy
from geartrain.models.tokenizer import train_tokenizer
from geartrain.placement import own_device
from geartrain.progress import bar, track
from geartrain.stages.stage import Job, Metrics, stage
from geartrain.training.batch import TokenSequence, make_sequence
from geartrain.training.supervised import Plan, train_supervised

TOKENIZER_DEMONSTRATIONS = 600
"""Demonstrations that the tokenizer is trained on; more change no merge that matters."""


@stage(inputs=("tasks",), sections=("model", "environment", "warm_start"), files=("model.path",))
def run(job: Job) -> Metrics:
    """Write a Hugging Face folder and `history.jsonl`.

    Raises:
        UserError: the pretrained model cannot be loaded, or training diverges.
    """
    config, section, output = job.config, job.config.warm_start, job.outputs["warm_start"]
    environment = load_environment(config.environment, job.inputs["tasks"] / "worlds")
    tasks = read_tasks(job.inputs["tasks"], "train")
    demonstrations = list(
        track(
            demonstrate_all(
                environment,
                tasks,
                count=section.demonstrations,
                seed=config.seed,
                max_turns=config.environment.max_turns,
            ),
            "demonstrations",
            total=section.demonstrations,
        )
    )
    policy = _start(config, demonstrations)
    learned = section.observation_loss
    sequences = [tokenize(demonstration, policy.chat, observations=learned) for demonstration in demonstrations]
    kept = [sequence for sequence in sequences if len(sequence) <= config.model.context]
    if not kept:
        shortest = min(map(len, sequences))
        raise UserError(
            f"model.context: {config.model.context} tokens hold no demonstration; the shortest has {shortest}."
        )
    plan = Plan.make(list(map(len, kept)), epochs=section.epochs, batch_tokens=section.batch_tokens, seed=config.seed)
    with bar("warm start", total=len(plan.steps)) as advance:
        history = train_supervised(
            policy.model,
            kept,
            plan,
            learning_rate=section.learning_rate,
            matrix_learning_rate=section.matrix_learning_rate if section.optimizer == "muon" else None,
            warmup=section.warmup,
            precision=section.precision,
            microbatch_tokens=section.microbatch_tokens,
            checkpoint_every=section.checkpoint_every,
            work=job.work / "checkpoints",
            on_step=lambda record: advance(1, status=f"loss {record['loss']:.3f}"),
        )
    save_policy(policy, output)
    write_atomically(output / "history.jsonl", "".join(json.dumps(record) + "\n" for record in history))
    return {
        "demonstrations": len(demonstrations),
        "expert_success": round(sum(d.success for d in demonstrations) / len(demonstrations), 4),
        "too_long": len(sequences) - len(kept),
        "tokens_per_episode": round(sum(map(len, sequences)) / len(sequences), 1),
        "parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
        "steps": len(history),
        "first_loss": round(history[0]["loss"], 4),
        "last_loss": round(sum(record["loss"] for record in history[-20:]) / len(history[-20:]), 4),
    }


def tokenize(demonstration: Demonstration, chat: ChatFormat, *, observations: bool) -> TokenSequence:
    """Render a demonstration as the sampler would have.

    Loss on what the expert wrote and its end of turn; with `observations`, on
    what the tools answered too. Never on the opening.
    """
    ids = list(chat.opening_ids(demonstration.opening))
    action, loss = [False] * len(ids), [False] * len(ids)
    for index, exchange in enumerate(demonstration.exchanges):
        parts = [(chat.action_ids(exchange.action), True)]
        if index + 1 < len(demonstration.exchanges):
            parts.append((chat.observation_ids(exchange.observation), False))
        for part, acted in parts:
            ids += part
            action += [acted] * len(part)
            loss += [acted or observations] * len(part)
    return make_sequence(ids, action, loss)


def _start(config: Config, demonstrations: Sequence[Demonstration]) -> Policy:
    """Return the model before training: built here, or loaded from the configured path."""
    if not isinstance(config.model, TinyModel):
        options: dict[str, Any] = {"dtype": config.model.dtype, "context": config.model.context}
        return load_policy(Path(config.model.path), **options, device=own_device())
    sample = demonstrations[:TOKENIZER_DEMONSTRATIONS]
    texts = (text for demonstration in sample for text in demonstration.texts())
    tokenizer = train_tokenizer(texts, vocabulary=config.model.vocabulary)
    return build_policy(tokenizer, config.model, seed=config.seed, device=own_device())
