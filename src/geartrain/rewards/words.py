"""Words, scripts and languages of a text: what the rules count with. Standard library alone."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_UNUSUAL = re.compile(r"[^ -~\t\n\r]")
FUNCTION_WORDS = {
    "en": "the a an of to in is are was were be been and or but not that this it as at by for from on with its has "
    "have which who there they we you he she his her their so if than then when do does did can will would all one",
    "de": "der die das ein eine einen einem einer und oder aber nicht ist sind war waren zu in im am an auf mit von "
    "vom für als es sie er wir ihr ich dass wenn auch sich des den dem hat haben wird bei nach aus",
    "fr": "le la les un une des du de et ou mais ne pas est sont était il elle ils nous vous que qui dans sur avec "
    "pour par au aux ce cette son sa ses se plus en a ont",
    "es": "el la los las un una unos de del y o pero no es son era en con por para que se su sus al lo como más ha han "
    "este esta esto muy hay",
    "it": "il lo la i gli le un uno una di del della e o ma non è sono era in con per che si su da al alla come più ha "
    "hanno questo questa",
}
"""Words that hold sentences together, by language: their share tells prose from a heap of words, and one language
from another. Written down here; a tool that needs more languages is one that a person adds."""
_SETS = {language: frozenset(words.split()) for language, words in FUNCTION_WORDS.items()}
_EVERY = frozenset().union(*_SETS.values())


def words(text: str) -> list[str]:
    """Return the words, casefolded, in order."""
    return [word.casefold() for word in _WORD.findall(text)]


def content_words(text: str) -> list[str]:
    """Return the words that are no function words of any known language, numbers included."""
    return [word for word in words(text) if word not in _EVERY]


def function_share(tokens: Sequence[str]) -> float:
    """Return the largest share of function words that any one language finds; 0 without words."""
    return max(_shares(tokens).values()) if tokens else 0.0


def language(text: str, *, least: int = 8) -> str | None:
    """Return the language with most function words, or None: too few words (`least`), none of ours, or a draw."""
    tokens = words(text)
    if len(tokens) < least:
        return None
    (first, best), (_, second) = Counter(_shares(tokens)).most_common(2)
    return first if best >= 0.1 and best > second else None


def _shares(tokens: Sequence[str]) -> dict[str, float]:
    return {name: sum(token in known for token in tokens) / max(1, len(tokens)) for name, known in _SETS.items()}


def shingles(tokens: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return every run of `size` tokens, in order."""
    return [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]


def stretches(tokens: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return runs of `size` tokens that cover a text, each half over the one before; a short text is one."""
    starts = range(0, max(1, len(tokens) - size + 1), max(1, size // 2))
    last = max(0, len(tokens) - size)
    return [tokens[start : start + size] for start in sorted({*starts, last})]


def script(letter: str) -> str:
    """Return the script of a letter as Unicode names it, such as LATIN; "" for what is no letter."""
    if not letter.isalpha():
        return ""
    return unicodedata.name(letter, "UNKNOWN").split(" ", 1)[0].split("-", 1)[0]


def mixed_words(text: str) -> list[str]:
    """Return the words that mix Latin with Cyrillic or Greek letters, or hold styled letters: homoglyphs."""
    found = []
    for word in _WORD.findall(text):
        if word.isascii():
            continue
        scripts = {script(letter) for letter in word} - {""}
        if len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1 or scripts & {"MATHEMATICAL", "FULLWIDTH"}:
            found.append(word)
    return found


def hidden_characters(text: str) -> list[str]:
    """Return characters that show nothing or reorder text: control, format, private, unassigned. Tab, line ends and
    the joiner inside an emoji are not among them."""
    found = []
    for match in _UNUSUAL.finditer(text):
        index, character = match.start(), match.group()
        kind = unicodedata.category(character)
        if kind not in {"Cc", "Cf", "Co", "Cn", "Cs"}:
            continue
        joins = character in "\u200d\ufe0f" and index and unicodedata.category(text[index - 1]) in {"So", "Sk", "Mn"}
        if not joins:
            found.append(character)
    return found
