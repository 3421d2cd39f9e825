"""What code in a sandbox may import: what its zygote has loaded, and nothing else."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_STANDARD = """
__future__ abc array ast base64 binascii bisect builtins calendar cmath codecs collections collections.abc colorsys
contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib dis enum errno fnmatch fractions
functools gc glob graphlib gzip hashlib heapq hmac html importlib importlib.util inspect io ipaddress itertools json
keyword linecache locale logging marshal math mmap numbers operator os os.path pathlib pickle platform pprint queue
quopri random re reprlib resource secrets select selectors shlex shutil signal socket stat statistics string
stringprep struct subprocess sys tempfile textwrap threading time timeit token tokenize traceback types typing
unicodedata unittest urllib urllib.parse uuid warnings weakref zipfile zlib zoneinfo _strptime encodings.ascii
encodings.cp437 encodings.cp1252 encodings.hex_codec encodings.idna encodings.latin_1 encodings.punycode
encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape encodings.utf_16 encodings.utf_16_be
encodings.utf_16_le encodings.utf_32 encodings.utf_8_sig
"""
STANDARD = tuple(_STANDARD.split())
"""Of the standard library what computes, and what code imports without need; each module more is time for each run."""
_OPTIONAL = {"zlib", "gzip", "zipfile"}
"""A Python may have been built without."""
LATER = {"numpy": tuple(f"numpy.{part}" for part in ("random", "fft", "ma", "polynomial", "linalg"))}
"""Package -> parts that it loads when they are first used."""


class Closed:
    """The only finder that is left when all is loaded."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Refuse."""
        raise ModuleNotFoundError(f"No module named {name!r} in this sandbox, which loads nothing", name=name)


def warm(extra: Sequence[str]) -> None:
    """Load the standard library and `extra`; then take away the means to load anything.

    Raises:
        ImportError: one of `extra` is not installed.
    """
    for name in STANDARD:
        with suppress(*([ImportError] if name in _OPTIONAL else [])):
            import_module(name)
    for name in extra:
        for part in (name, *LATER.get(name, ())):
            import_module(part)
    sys.path[:] = []
    sys.path_hooks[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [Closed]
