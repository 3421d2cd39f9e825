"""The feature repository: where its definitions lie, what they say, and a digest of them. Loads no feast by itself."""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from geartrain.artifacts import definitions_digest, definitions_folder
from geartrain.errors import UserError
from geartrain.features.errors import DefinitionError

HOME_VARIABLE = "GEARTRAIN_FEATURES"
"""Names the folder of tables, registry and online store, for the definitions and for Feast's own command line."""
TABLES_FOLDER = "tables"
SETTINGS = "feature_store.yaml"


def find_definitions() -> tuple[Path, str]:
    """Return the folder of the definitions, and their digest.

    Raises:
        DefinitionError: there is none; the message says where it was looked for.
    """
    folder = definitions_folder()
    if not (folder / SETTINGS).is_file():
        raise DefinitionError(
            f"{folder}: no feature repository ({SETTINGS} and definitions). Run from the project's root, "
            "or set GEARTRAIN_FEATURE_REPO to its folder."
        )
    return folder, definitions_digest()


def read_settings(path: Path, home: Path) -> dict[str, Any]:
    """Return Feast's settings, variables of the environment filled in.

    Raises:
        UserError: no such file, no YAML, or a variable that is not set.
    """
    try:
        with _features_at(home):
            text = os.path.expandvars(path.read_text(encoding="utf-8"))
        record = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: not the settings of a feature store ({error}).") from error
    if not isinstance(record, dict):
        raise UserError(f"{path}: expected keys such as `registry:`, found {type(record).__name__}")
    unset = sorted({part.split("}")[0] for line in _values(record) for part in line.split("${")[1:]})
    if unset:
        raise UserError(f"{path}: {', '.join(unset)} not set. The file says what each is; export it first.")
    return record


def load_modules(folder: Path, home: Path) -> list[ModuleType]:
    """Execute every definition file and return the modules; nothing of them stays in `sys.modules`.

    Each call gives fresh objects, bound to the tables of `home`.

    Raises:
        DefinitionError: a file does not run.
    """
    names = [path.stem for path in sorted(folder.glob("*.py"))]
    if not names:
        raise DefinitionError(f"{folder}: no definitions (*.py). Copy them from the project's data/feature_repo.")
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    writes = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a folder of definitions, which may be read only
    sys.path.insert(0, str(folder))
    try:
        with _features_at(home):
            importlib.invalidate_caches()
            return [_import(folder, name) for name in names]
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def _import(folder: Path, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever somebody's definitions raise
        reason = f"{type(error).__name__}: {error}"
        raise DefinitionError(f"{folder / name}.py: does not run ({reason}). Mend it; nothing was applied.") from error


@contextmanager
def _features_at(home: Path) -> Iterator[None]:
    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(home.absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ[HOME_VARIABLE]
        else:
            os.environ[HOME_VARIABLE] = before


def _values(record: Any) -> Sequence[str]:
    if isinstance(record, dict):
        return [text for value in record.values() for text in _values(value)]
    return [record] if isinstance(record, str) else []
