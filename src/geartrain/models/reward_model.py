"""A reward model: a small BERT-layout encoder, mean pooling, one linear output.

A text is `[CLS] task [SEP] steps answer [SEP]`. To fit `max_tokens`, ids are
cut from the left of `steps`; task and answer are never cut. Masks come from
lengths, never from ids that look like padding, and positions are counted from
the first real token, so padding on either side changes nothing (rl-faults D2).

Legend: B rows, T tokens, H width of the encoder.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from geartrain.artifacts import write_json
from geartrain.errors import UserError
from geartrain.models.backbone import load_encoder, mean_pool
from geartrain.placement import CPU, device_of, half_precision, on_cpu

HEAD_GAIN = 16.0
"""Factor on the head's output: lets the head learn faster than the encoder at one learning rate."""
BATCH_TOKENS = 4096
FORMAT = 1


class TextTooLongError(ValueError):
    """Task and answer alone do not fit `max_tokens`."""


@dataclass(frozen=True)
class Tokens:
    """One text, ready for the encoder: ids and which of the two segments each belongs to."""

    ids: tuple[int, ...]
    segments: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Calibration:
    """From the raw output to nats: `(raw - centre) / temperature`."""

    centre: float = 0.0
    """Mean raw output over the training texts."""
    temperature: float = 1.0
    """Fitted on held-out pairs; then a difference d means "better with probability sigmoid(d)"."""


class RewardModel:
    """Scores transcripts. Build with `new` or `load`."""

    def __init__(
        self, encoder: Any, tokenizer: Any, head: nn.Linear, *, max_tokens: int, calibration: Calibration, trusted: bool
    ) -> None:
        self.encoder = encoder.eval()
        self.tokenizer = tokenizer
        self.head = head
        self.max_tokens = max_tokens
        self.calibration = calibration
        self.trusted = trusted
        """Whether held-out pairs showed that it ranks better than a coin."""

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.head.weight.device

    @classmethod
    def new(cls, encoder: Any, tokenizer: Any, *, max_tokens: int) -> "RewardModel":
        """Put an untrained head on an encoder, where it lies. It is zero: all constructions are equal (rl-faults D5).

        Raises:
            UserError: the encoder has another layout, or reads fewer than `max_tokens` tokens.
        """
        if not hasattr(encoder, "embeddings") or not hasattr(getattr(encoder, "encoder", None), "layer"):
            found = type(encoder).__name__
            raise UserError(f"reward_model.encoder: {found} has no BERT layout (embeddings, encoder.layer). Use one.")
        limit = encoder.config.max_position_embeddings
        if max_tokens > limit:
            raise UserError(f"reward_model.max_tokens: {max_tokens}, but the encoder reads {limit} tokens. Lower it.")
        head = nn.Linear(encoder.config.hidden_size, 1, bias=False)
        nn.init.zeros_(head.weight)
        return cls(
            encoder,
            tokenizer,
            head.to(device_of(encoder)),
            max_tokens=max_tokens,
            calibration=Calibration(),
            trusted=False,
        )

    @classmethod
    def load(cls, folder: Path, *, device: torch.device = CPU) -> "RewardModel":
        """Load what `save` wrote, to `device`.

        Raises:
            UserError: the folder is incomplete or of another version.
        """
        path = folder / "reward_model.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise UserError(f"{path}: format {record['format']}, expected {FORMAT}. Run `reward_model` again.")
            encoder, tokenizer = load_encoder(folder / "encoder", device=device)
            model = cls.new(encoder, tokenizer, max_tokens=record["max_tokens"])
            model.head.load_state_dict(load_file(folder / "head.safetensors"))
            model.calibration = Calibration(record["centre"], record["temperature"])
            model.trusted = record["trusted"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder}: no reward model ({error!r:.200}). Run the stage `reward_model`.") from error
        return model

    def save(self, folder: Path) -> None:
        """Write a self-contained folder: encoder and tokenizer, head, calibration."""
        self.encoder.save_pretrained(folder / "encoder")
        self.tokenizer.save_pretrained(folder / "encoder")
        weights = {name: value.contiguous() for name, value in on_cpu(self.head.state_dict()).items()}
        save_file(weights, folder / "head.safetensors")
        write_json(
            folder / "reward_model.json",
            {
                "format": FORMAT,
                "max_tokens": self.max_tokens,
                "centre": self.calibration.centre,
                "temperature": self.calibration.temperature,
                "trusted": self.trusted,
            },
        )

    def tokens(self, prompt: str, steps: str, answer: str) -> Tokens:
        """Return the ids of a text. Raises TextTooLongError if task and answer alone do not fit."""
        task, work, end = (self.tokenizer.encode(text, add_special_tokens=False) for text in (prompt, steps, answer))
        room = self.max_tokens - 3 - len(task) - len(end)
        if room < 0:
            raise TextTooLongError(f"task and answer take {self.max_tokens - room} of {self.max_tokens} tokens")
        first = [self.tokenizer.cls_token_id, *task, self.tokenizer.sep_token_id]
        second = [*work[max(0, len(work) - room) :], *end, self.tokenizer.sep_token_id]
        return Tokens((*first, *second), (*[0] * len(first), *[1] * len(second)))

    def lower(self, texts: Sequence[Tokens], layers: int, *, left_padding: bool = False) -> tuple[Tensor, Tensor]:
        """Return (hidden_BTH after the first `layers` layers, mask_BT)."""
        ids_BT, segment_BT, mask_BT = self._collate(texts, left_padding)
        position_BT = (mask_BT.long().cumsum(1) - 1).clamp_min(0)
        hidden_BTH = self.encoder.embeddings(input_ids=ids_BT, token_type_ids=segment_BT, position_ids=position_BT)
        return self._through(self.encoder.encoder.layer[:layers], hidden_BTH, mask_BT), mask_BT

    def upper(self, hidden_BTH: Tensor, mask_BT: Tensor, layers: int) -> Tensor:
        """Return raw_B, given the hidden states after the first `layers` layers."""
        last_BTH = self._through(self.encoder.encoder.layer[layers:], hidden_BTH, mask_BT)
        pooled_BH = mean_pool(last_BTH.float(), mask_BT)
        return HEAD_GAIN * torch.nn.functional.linear(pooled_BH, self.head.weight.float())[:, 0]

    @torch.inference_mode()
    def score(self, texts: Sequence[Tokens], *, bfloat16: bool = False) -> list[float]:
        """Return one calibrated score per text, in nats, in order.

        Depends on the set of texts in the last bits only. `bfloat16` halves the
        time where the CPU has it and moves scores by about 1 %.
        """
        scores = [0.0] * len(texts)
        for rows in _batches([len(text) for text in texts]):
            with half_precision(self.device, enabled=bfloat16):
                raw_B = self.upper(*self.lower([texts[row] for row in rows], 0), 0)
            for row, raw in zip(rows, raw_B.tolist(), strict=True):
                scores[row] = (raw - self.calibration.centre) / self.calibration.temperature
        return scores

    def _collate(self, texts: Sequence[Tokens], left: bool) -> tuple[Tensor, Tensor, Tensor]:
        width = max(len(text) for text in texts)
        ids_BT = torch.full((len(texts), width), self.tokenizer.pad_token_id)
        segment_BT = torch.zeros_like(ids_BT)
        mask_BT = torch.zeros(ids_BT.shape, dtype=torch.bool)
        for row, text in enumerate(texts):
            columns = slice(width - len(text), width) if left else slice(0, len(text))
            ids_BT[row, columns] = torch.tensor(text.ids)
            segment_BT[row, columns] = torch.tensor(text.segments)
            mask_BT[row, columns] = True
        return ids_BT.to(self.device), segment_BT.to(self.device), mask_BT.to(self.device)

    def _through(self, layers: nn.ModuleList, hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        hidden = hidden_BTH
        zero_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
        bias_B11T = zero_BT.masked_fill(~mask_BT, torch.finfo(torch.float32).min)[:, None, None]
        for layer in layers:
            hidden = layer(hidden, bias_B11T)
        return hidden


def has_fast_bfloat16(device: torch.device = CPU) -> bool:
    """Return whether a device multiplies bfloat16 in hardware; a CPU that does not is slower than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, probe, bool)() for probe in probes)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield indices, like lengths together, at most `BATCH_TOKENS` padded tokens at a time."""
    rows: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if rows and (len(rows) + 1) * lengths[rows[0]] > BATCH_TOKENS:
            yield rows
            rows = []
        rows.append(index)
    if rows:
        yield rows
