"""Stage `reward_model`: a Bradley-Terry model on the preference pairs."""

import json
from dataclasses import replace
from pathlib import Path

from geartrain import progress
from geartrain.artifacts import write_atomically
from geartrain.errors import UserError
from geartrain.features.frames import FRAMES, REWARD_MODEL, Frame, headroom_weights, read_frame, require_rows
from geartrain.models.backbone import load_encoder
from geartrain.models.reward_model import RewardModel, has_fast_bfloat16
from geartrain.placement import own_device
from geartrain.preferences.pairs import read_pairs
from geartrain.stages.stage import Job, Metrics, stage
from geartrain.training.reward_metrics import by_file, calibrate, is_trusted, resistance, summarise
from geartrain.training.reward_model import Prepared, Settings, Trainer, prepare


@stage(inputs=("preferences",), sections=("reward_model",), files=("reward_model.encoder",))
def run(job: Job) -> Metrics:
    """Write the reward model as a self-contained folder, with `history.jsonl`.

    Few pairs are enough to finish: a model that the held-out pairs do not show
    to be better than a coin is marked untrusted, and then has no say in the
    policy's reward.

    Raises:
        UserError: no training pair is left, or the encoder does not fit.
    """
    source = job.inputs["preferences"]
    frame = read_frame(source / FRAMES, REWARD_MODEL)
    encoder, tokenizer = load_encoder(job.config.reward_model.encoder, device=own_device())
    model = RewardModel.new(encoder, tokenizer, max_tokens=job.config.reward_model.max_tokens)
    prepared = _prepare(model, source / "pairs.parquet", frame, job.config.reward_model.headroom_weight)
    trainer = Trainer(model, prepared, _settings(job, bfloat16=has_fast_bfloat16(model.device)))
    with progress.bar("reward_model", total=trainer.total) as advance:
        history = trainer.run(job.work / "checkpoints", lambda record: advance(1, status=f"loss {record['loss']:.3f}"))
    raw = {part: trainer.raw(part) for part in prepared.examples}
    model.calibration = calibrate(raw["train"], raw["validation"])
    train, validation = ([example.pair for example in prepared.examples[split]] for split in ("train", "validation"))
    model.trusted = is_trusted(validation, raw["validation"])
    output = job.outputs["reward_model"]
    model.save(output)
    _write_history(output / "history.jsonl", history)
    files = [example.pair for example in prepared.examples["files"]]
    return {
        **summarise(train, validation, raw["train"], raw["validation"]),
        "trusted": model.trusted,
        "resistance": resistance([example.pair for example in prepared.examples["probes"]], raw["probes"]),
        "temperature": round(model.calibration.temperature, 4),
        "left_out": {"too_long": prepared.too_long, "equal_once_cut": prepared.equal_once_cut},
        "steps": len(history),
        "stopped_early": len(history) < trainer.total,
        "frame": frame.told(),
        **({"files": by_file(files, raw["files"])} if files else {}),
    }


def _prepare(model: RewardModel, source: Path, frame: Frame, headroom_weight: float) -> Prepared:
    pairs = read_pairs(source)
    keys = {name: [getattr(pair, name) for pair in pairs] for name in ("chosen_id", "rejected_id")}
    require_rows(frame, {**keys, "source_id": [pair.origin for pair in pairs]})
    labelled = [replace(pair, margin=margin) for pair, margin in zip(pairs, frame.column("margin"), strict=True)]
    prepared = prepare(model, labelled, headroom_weights(frame, headroom_weight).tolist())
    if not prepared.examples["train"]:
        held_out, lost = len(prepared.examples["validation"]), prepared.too_long + prepared.equal_once_cut
        raise UserError(
            f"{source}: no training pair ({held_out} held out, {lost} do not fit reward_model.max_tokens). "
            "Raise collect.tasks, collect.siblings or reward_model.max_tokens, or lower preferences.validation_share."
        )
    return prepared


def _settings(job: Job, *, bfloat16: bool) -> Settings:
    section = job.config.reward_model
    return Settings(
        epochs=section.epochs,
        learning_rate=section.learning_rate,
        batch_pairs=section.batch_pairs,
        train_layers=section.train_layers,
        patience=section.patience,
        margin_weight=section.margin_weight,
        seed=job.config.seed,
        bfloat16=bfloat16,
    )


def _write_history(path: Path, history: list[dict[str, float]]) -> None:
    write_atomically(path, "".join(json.dumps(record, sort_keys=True) + "\n" for record in history))
