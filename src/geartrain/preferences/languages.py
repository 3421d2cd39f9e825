"""Which language a text is in, by its script and its commonest words: no model, a microsecond or two a text.

Scripts that one language uses are told by their characters; languages of the Latin, Cyrillic and Arabic scripts by how
many of their commonest words occur. "und" where nothing speaks for one: too short, numbers, code.

Legend: N texts, T words, L languages.
"""
# ruff: noqa: RUF001

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geartrain.preferences.words import Words, stable_hash, words_of

UNKNOWN = "und"
_COMMON = {
    "en": "the of and to in is that for it you with are was be this have on not what how from can which as an your do "
    "write explain please give list does my would should i",
    "de": "der die und das ist nicht ein eine zu den von mit sich auf für dem des im es auch wie was ich kann bitte "
    "warum einen sind wird oder aber",
    "fr": "le la les et des est une un dans que pour pas qui sur avec ce il au du je vous sont plus comment quel "
    "quelle cette aux nous ou être",
    "es": "el la los las y que es una un en para con por no se del como qué más cómo cuál este esta son al su pero "
    "está puede",
    "it": "il la che di è un una per non sono con del della le gli come più cosa questo nel si dei anche alla quale "
    "perché ma ho",
    "pt": "o a os as e que é uma um para com não em do da no na por mais como se são você qual dos das ao ou foi isso",
    "nl": "de het een en van is dat niet in op te met voor zijn er aan ook als maar hoe wat kan je ik deze door naar "
    "wordt bij",
    "sv": "och att det som en är på av för med inte den till ett har jag om du hur vad kan var sig men från så",
    "pl": "i w na z się nie to że jest do jak co o dla czy po ale przez oraz są może od tego jego które jaki",
    "tr": "ve bir bu için ne ile da de çok nasıl daha olarak mi gibi var ben en olan kadar sonra değil her",
    "vi": "và của là có không được trong cho một các với những này đã người như để tôi khi làm thế nào",
    "id": "yang dan di untuk dengan tidak ini dari dalam adalah itu pada akan saya bagaimana apa ke atau bisa juga",
    "ru": "и в не на что с как это по он для из я но к от а все так его вы или то был если мне может",
    "uk": "і в не на що з як це та він для до я але від а всі так його ви або був якщо мені може є",
    "bg": "и в не на че се за от са това как да с по е но ще или които си като",
    "ar": "في من على أن إلى هذا ما هل عن مع التي هو كيف لا كان هذه أو ذلك",
    "fa": "و در به از که این است را با برای آن یک می ها چه چگونه تا خود هم",
}
LANGUAGES = tuple(_COMMON)
_RANGES = (  # first and last lead bytes (one or two) of the script, and its language
    ("ja", ((0xE381, 0xE383),)),  # kana
    ("ko", ((0xEAB0, 0xED9F),)),
    ("zh", ((0xE4B8, 0xE9BF),)),
    ("hi", ((0xE0A4, 0xE0A5),)),
    ("th", ((0xE0B8, 0xE0B9),)),
    ("el", ((0xCD, 0xCF),)),
    ("he", ((0xD6, 0xD7),)),
)
SCRIPTS = tuple(name for name, _ in _RANGES)
NAMES = (*LANGUAGES, *SCRIPTS, UNKNOWN)


def _table() -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the common words' hashes, sorted; where each one's votes begin; the votes' languages and weights."""
    by_word: dict[int, list[int]] = {}
    for place, language in enumerate(LANGUAGES):
        for word in dict.fromkeys(_COMMON[language].split()):
            by_word.setdefault(stable_hash(word), []).append(place)
    hashes = sorted(by_word)
    begins = np.cumsum([0, *(len(by_word[word]) for word in hashes)])
    votes = [place for word in hashes for place in by_word[word]]
    weights = [1.0 / len(by_word[word]) for word in hashes for _ in by_word[word]]
    return np.array(hashes, dtype=np.uint64), begins, np.array(votes), np.array(weights)


def _index(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int16], np.uint64]:
    """Return a table from the first bits of a hash to its place, and by how much to shift; no two share a cell."""
    for bits in range(12, 24):
        cells = hashes >> np.uint64(64 - bits)
        if len(np.unique(cells)) == len(cells):
            table = np.zeros(1 << bits, dtype=np.int16)
            table[cells] = np.arange(len(cells))
            return table, np.uint64(64 - bits)
    raise AssertionError("two words have the same hash")


_WORDS, _BEGINS, _VOTES, _WEIGHTS = _table()
_CELLS, _SHIFT = _index(_WORDS)


def find_languages(texts: pa.Array) -> NDArray[np.int8]:
    """Return [N]: places in `NAMES`."""
    found_N = _by_words(words_of(pc.utf8_lower(texts)))
    _by_script(texts, found_N)
    return found_N


def _by_words(words: Words) -> NDArray[np.int8]:
    count = len(words.ends_N1) - 1
    place_T = _CELLS[words.hash_T >> _SHIFT]
    hit_T = np.flatnonzero(_WORDS[place_T] == words.hash_T)
    text_T = np.searchsorted(words.ends_N1, hit_T, side="right") - 1
    times = np.diff(_BEGINS)[place_T[hit_T]]
    vote_V = np.arange(int(times.sum())) + np.repeat(_BEGINS[place_T[hit_T]] - (np.cumsum(times) - times), times)
    cell_V = np.repeat(text_T, times) * len(LANGUAGES) + _VOTES[vote_V]
    votes_NL = np.bincount(cell_V, weights=_WEIGHTS[vote_V], minlength=count * len(LANGUAGES))
    votes_NL = votes_NL.reshape(count, len(LANGUAGES))
    best_N = votes_NL.argmax(axis=1)
    most_N = votes_NL[np.arange(count), best_N]
    length_N = np.diff(words.ends_N1)
    sure_N = (most_N >= 0.75) & (most_N >= 0.04 * length_N)
    return np.where(sure_N, best_N, len(NAMES) - 1).astype(np.int8)


def _by_script(texts: pa.Array, found_N: NDArray[np.int8]) -> None:
    """Put in the languages of texts of which a fifth or more of the bytes are of a script of one language."""
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    lead_B = np.flatnonzero(data[offsets[0] : offsets[-1]] >= 0xC2) + offsets[0] if len(offsets) else np.empty(0, int)
    if not len(lead_B):
        return
    text_B = np.searchsorted(offsets, lead_B, side="right") - 1
    one_B = data[lead_B].astype(np.int32)
    two_B = (one_B << 8) | data[np.minimum(lead_B + 1, len(data) - 1)]
    length_N = np.maximum(np.diff(offsets), 1)
    for place in reversed(range(len(SCRIPTS))):  # kana decides before the characters that Japanese shares with Chinese
        inside_B = np.zeros(len(lead_B), dtype=bool)
        for low, high in _RANGES[place][1]:
            value_B, width = (two_B, 3) if low > 0xFF else (one_B, 2)
            inside_B |= (value_B >= low) & (value_B <= high)
        share_N = np.bincount(text_B[inside_B], minlength=len(found_N)) * width / length_N
        found_N[share_N > (0.1 if SCRIPTS[place] == "ja" else 0.3)] = len(LANGUAGES) + place
