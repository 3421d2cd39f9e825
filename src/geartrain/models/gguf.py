"""GGUF files: converted once into a model folder that lies beside the file, then loaded from there.

transformers can read a GGUF file, slowly, and what it makes of one cannot be
saved or trained as it is. `repair` mends what it gets wrong.
"""

import hashlib
import importlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

from geartrain.errors import UserError


def converted(path: Path, convert: Callable[[Path, Path], None]) -> Path:
    """Return the model folder made from a GGUF file, making it if it is not there yet.

    The folder is named after the file's content and appears only when complete. If
    the file's own folder cannot be written, `~/.cache/geartrain` is used.

    Arguments:
        path: the GGUF file.
        convert: called with the file and an empty folder to fill.

    Raises UserError if there is no such file, or the packages that read it (gguf, accelerate) are not installed.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such GGUF file.")
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{path}: reading a GGUF file needs more packages: pip install {' '.join(missing)}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    home = path.parent if os.access(path.parent, os.W_OK) else Path.home() / ".cache" / "geartrain"
    folder = home / f"{path.stem}.converted-{digest}"
    if not folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=home))
        try:
            convert(path, half)
            for item in half.iterdir():
                with item.open("rb") as file:
                    os.fsync(file.fileno())
            half.replace(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return folder


def repair(path: Path, model: Any, tokenizer: Any) -> Any:
    """Return a plain model with the weights that were read from `path`; mend `tokenizer` in place."""
    settings = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    plain = type(model)(type(model.config)(**settings))  # a model that calls itself quantised refuses to be saved
    plain.load_state_dict(model.state_dict())
    if _pre_tokenizer_kind(path) == "smollm":  # ignored by transformers: digits stand alone in this one
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    if tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
        spare = "<|endoftext|>"
        tokenizer.pad_token = spare if spare in tokenizer.get_vocab() else tokenizer.eos_token
    tokenizer.model_max_length = plain.config.max_position_embeddings  # it says 1e30
    plain.config.pad_token_id = tokenizer.pad_token_id
    return plain


def _pre_tokenizer_kind(path: Path) -> str | None:
    field = importlib.import_module("gguf").GGUFReader(path).fields.get("tokenizer.ggml.pre")
    return None if field is None else str(field.contents())
