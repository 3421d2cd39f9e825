"""What looks like data of a person, or like a secret: e-mail, phone, card, IBAN, key. It is flagged, not judged.

One pass over all texts finds the few in which there may be something; those are looked at closely. Numbers must pass
their own check (Luhn's for cards, remainder 97 for IBANs), so that an order number is no card.
"""

import re
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

KINDS = ("email", "phone", "card", "iban", "key")

_GATE = (
    r"@[A-Za-z0-9]|[0-9][0-9 ().\-]{6}[0-9]|(?:sk|rk|pk)[-_]|gh[pousr]_|github_pat|glpat-|hf_|AKIA|ASIA|AIza|xox[a-z]-"
    r"|PRIVATE KEY|eyJ"
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}\b")
_PHONE = re.compile(
    r"(?<![\w.+-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){2,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4})(?![\w-])"
)
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_ISSUED = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3[0689]\d{12}(?:\d{2})?|35\d{14}|6\d{15,18}"
)
"""Beginnings and lengths that cards have."""
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_KEY = re.compile(
    r"\b(?:(?:sk|rk|pk)[-_](?:[a-z]+[-_])?[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|xox[a-z]-[\w-]{10,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
)


def _luhn(digits: str) -> bool:
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if index % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _has_card(text: str) -> bool:
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        if _ISSUED.fullmatch(digits) and _luhn(digits):
            return True
    return False


def _has_iban(text: str) -> bool:
    for match in _IBAN.finditer(text):
        packed = match[0].replace(" ", "")
        if 15 <= len(packed) <= 34 and int("".join(str(int(c, 36)) for c in packed[4:] + packed[:4])) % 97 == 1:
            return True
    return False


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "email": lambda text: _EMAIL.search(text) is not None,
    "phone": lambda text: _PHONE.search(text) is not None,
    "card": _has_card,
    "iban": _has_iban,
    "key": lambda text: _KEY.search(text) is not None,
}


def flags_of(text: str) -> list[str]:
    """Return the kinds that a text seems to hold, in the order of `KINDS`."""
    return [kind for kind in KINDS if _CHECKS[kind](text)]


def find_personal(texts: pa.Array) -> dict[int, list[str]]:
    """Return place -> kinds, for those of the texts that seem to hold any."""
    suspects = pc.indices_nonzero(pc.match_substring_regex(texts, _GATE)).to_pylist()
    looked = ((place, flags_of(texts[place].as_py())) for place in suspects)
    return {place: kinds for place, kinds in looked if kinds}
