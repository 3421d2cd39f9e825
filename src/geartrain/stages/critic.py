"""Stage `critic`: the sibling critic, trained on contrasts between collected siblings."""

import json
from collections.abc import Sequence
from typing import Any

from geartrain.artifacts import write_atomically, write_json
from geartrain.config import CriticSection
from geartrain.features.frames import CRITIC, FRAMES, headroom_weights, read_frame, require_rows
from geartrain.models.backbone import Policy, load_policy
from geartrain.models.heads import save_head
from geartrain.placement import own_device
from geartrain.progress import track
from geartrain.stages.stage import Job, Metrics, stage
from geartrain.training.critic import (
    CriticData,
    Labelling,
    judge_critic,
    shuffle_labels,
    split_by_task,
    train_critic,
)
from geartrain.training.features import TextEncoder, TurnFeatures, frozen_pass, sequence_of
from geartrain.trajectory import Trajectory, read_trajectories

CHUNK = 128
"""Trajectories per step of the progress bar."""
MICROBATCH_TOKENS = 8192


@stage(inputs=("warm_start", "collect", "preferences"), sections=("model", "critic"), files=("critic.encoder",))
def run(job: Job) -> Metrics:
    """Write `critic.safetensors`, `critic.json`, `history.jsonl`, and `encoder/` where one is configured.

    Raises:
        UserError: there are rollouts of fewer than two tasks, or no turn at all.
    """
    config, section, output = job.config, job.config.critic, job.outputs["critic"]
    trajectories = list(read_trajectories(job.inputs["collect"] / "trajectories.parquet"))
    frame = read_frame(job.inputs["preferences"] / FRAMES, CRITIC)
    require_rows(frame, {name: [getattr(t, name) for t in trajectories] for name in ("task_id", "sibling")})
    options: dict[str, Any] = {"dtype": config.model.dtype, "context": config.model.context, "device": own_device()}
    policy = load_policy(job.inputs["warm_start"], **options)
    features = _features(policy, section, trajectories, output)
    labelling = Labelling(section.shrinkage, section.subgoal_credit, section.clip, section.similarity)
    weights = headroom_weights(frame, section.headroom_weight).tolist()
    data = labelling.label(trajectories, features, outcomes=frame.column("outcome"), weights=weights)
    training, validation = split_by_task(data, validation_share=section.validation_share, seed=config.seed)
    settings: dict[str, Any] = {
        "hidden": section.hidden,
        "learning_rate": section.learning_rate,
        "epochs": section.epochs,
        "seed": config.seed,
        "device": policy.model.device,
    }
    head, history = train_critic(training, validation, **settings)
    control, _ = train_critic(shuffle_labels(training, seed=config.seed), validation, **settings)
    judged = judge_critic(head, validation)
    metrics = {
        **{name: _rounded(value) for name, value in judged.items()},
        "correlation_shuffled": _rounded(judge_critic(control, validation)["correlation"]),
        "epochs": len(history),
        **_label_statistics(data),
        "frame": frame.told(),
    }
    save_head(head, output / "critic.safetensors")
    write_json(
        output / "critic.json",
        {
            "features": "warm_start" if section.encoder is None else "encoder",
            "reliability": max(0.0, judged["correlation"] or 0.0),
            "labels": vars(labelling),
            **metrics,
        },
    )
    write_atomically(output / "history.jsonl", "".join(json.dumps(record) + "\n" for record in history))
    return metrics


def _features(
    policy: Policy, section: CriticSection, trajectories: Sequence[Trajectory], output: Any
) -> list[TurnFeatures]:
    encoder = None
    if section.encoder is not None:
        encoder = TextEncoder(section.encoder, policy.tokenizer.decode, device=policy.model.device)
        encoder.save(output / "encoder")
    features: list[TurnFeatures] = []
    for start in track(range(0, len(trajectories), CHUNK), "critic features"):
        chunk = trajectories[start : start + CHUNK]
        if encoder is not None:
            features += encoder(chunk)
            continue
        scores = frozen_pass(
            policy.model,
            chunk,
            [sequence_of(trajectory) for trajectory in chunk],
            microbatch_tokens=MICROBATCH_TOKENS,
            want_logprobs=False,
            want_turns=True,
        )
        features += [score.turns for score in scores if score.turns is not None]
    return features


def _label_statistics(data: CriticData) -> Metrics:
    contrasted_S = data.support_S > 0
    return {
        "turns": len(data),
        "tasks": len(set(data.task_S)),
        "contrasted_share": _rounded(float(contrasted_S.float().mean())),
        "positive_share": _rounded(float((data.credit_S > 0).float().mean())),
        "negative_share": _rounded(float((data.credit_S < 0).float().mean())),
        "label_mean": _rounded(float(data.credit_S.mean())),
        "label_std": _rounded(float(data.credit_S.std(correction=0))),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
