"""Prompts: a sentence or two per part, in wordings for everyone and wordings kept for the paraphrase split.

Values of the database are quoted, as in SQL and in the tools' answers, so that nothing has to be guessed.
"""

from collections.abc import Callable, Mapping, Sequence

from geartrain.environments.analyst.questions import (
    Compare,
    Drill,
    Part,
    Rank,
    Series,
    Share,
)
from geartrain.environments.analyst.rendering import quote

COMMON: Mapping[str, Sequence[str]] = {
    "rank": (
        "Which {k_groups} had the {highest} {metric} in {period}? Report as {sections}.",
        "Find the {k_groups} with the {highest} {metric} in {period} and report as {sections}.",
        "Rank {groups} by {metric} in {period} and report the {k_best} as {sections}.",
        "I need the {k_best} {group_s} by {metric} for {period}, reported as {sections}.",
    ),
    "compare": (
        "Give the {metric} of {entity} in {months}, each reported under its month.{change}",
        "What was the {metric} of {entity} in {months}? Report each under its month.{change}",
        "Compare the {metric} of {entity} over {months} and report each under its month.{change}",
    ),
    "drill": (
        "Which {chain} had the {highest} {metric} in {period}? Report as {sections}.",
        "Find the {chain} with the {highest} {metric} in {period} and report as {sections}.",
        "Drill down by {metric} in {period}: the {best} {chain}. Report as {sections}.",
    ),
    "series": (
        "For the monthly {metric} of {entity} in {year}, report {asks}.",
        "Look at the {metric} of {entity} by month in {year} and report {asks}.",
        "From the monthly {metric} in {year} of {entity} I need {asks}.",
    ),
    "share": (
        "What percentage of the {metric} {whole} in {period} came from {some}? Report as {sections}.",
        "Find the share of {some} in the {metric} {whole} in {period} and report as {sections}.",
        "Report as {sections} the percentage that {some} had of the {metric} {whole} in {period}.",
    ),
    "mail": (
        "Then mail the report to {recipient}.",
        "When done, send the report by mail to {recipient}.",
        "Mail the complete report to {recipient}.",
    ),
}
PARAPHRASED: Mapping[str, Sequence[str]] = {
    "rank": (
        "In {period}, find which {k_groups} had the {highest} {metric}, and report as {sections}.",
        "Report as {sections} the {k_best} {group_s} by {metric} in {period}.",
    ),
    "compare": (
        "In {months}, what was the {metric} of {entity}? I need each under its month.{change}",
        "Under its month, report each {metric} that {entity} had in {months}.{change}",
    ),
    "drill": (
        "In {period}, find which {chain} had the {highest} {metric}, and report as {sections}.",
        "Report as {sections} the {best} {chain} by {metric} in {period}.",
    ),
    "series": (
        "I need {asks} from the {metric} of {entity} by month in {year}.",
        "In {year}, look at the monthly {metric} of {entity}. Report {asks}.",
    ),
    "share": ("In {period}, what share of the {metric} {whole} came from {some}? Report as {sections}.",),
    "mail": (
        "The report is for {recipient}: mail it when complete.",
        "To {recipient}, send the complete report by mail.",
    ),
}

_PLURALS = {
    "country": "countries",
    "city": "cities",
    "customer": "customers",
    "genre": "genres",
    "artist": "artists",
    "rep": "sales reps",
}
_CHANGES = {
    "diff": " Report the difference from {first} to {last} as {section}.",
    "growth": " Report the growth in percent from {first} to {last} as {section}.",
    "share": " Report {first} in percent of {last} as {section}.",
}
_ASKS = {
    "outlier": "the month that deviates most",
    "top": "the best month",
    "bottom": "the worst month",
    "sum": "the total",
    "mean": "the mean",
}


def fields(part: Part, sections: Sequence[str]) -> dict[str, str]:
    """Return what a wording's placeholders stand for."""
    return {"metric": part.metric, "sections": ", ".join(sections)} | _FIELDS[part.kind](part, sections)


def _rank(part: Rank, sections: Sequence[str]) -> dict[str, str]:
    singular = _singular(part.group)
    plural = _PLURALS[part.group]
    best = _best(part.order)
    return {
        "k_groups": singular if part.k == 1 else f"{part.k} {plural}",
        "k_best": best if part.k == 1 else f"{part.k} {best}",
        "group_s": singular if part.k == 1 else plural,
        "groups": plural,
        "highest": part.order,
        "period": quote(part.period) + (f" in {quote(part.country)}" if part.country else ""),
    }


def _compare(part: Compare, sections: Sequence[str]) -> dict[str, str]:
    names = [quote(month) for month in part.months]
    change = ""
    if part.change:
        change = _CHANGES[part.change].format(first=names[0], last=names[-1], section=sections[-1])
    return {"entity": quote(part.entity), "months": f"{', '.join(names[:-1])} and {names[-1]}", "change": change}


def _drill(part: Drill, sections: Sequence[str]) -> dict[str, str]:
    chain = part.levels[0] + "".join(f", then {level} in it" for level in part.levels[1:])
    return {"chain": chain, "highest": part.order, "best": _best(part.order), "period": quote(part.period)}


def _series(part: Series, sections: Sequence[str]) -> dict[str, str]:
    asks = [f"{_ASKS[ask]} as {section}" for ask, section in zip(part.asks, sections, strict=True)]
    listed = asks[0] if len(asks) == 1 else f"{', '.join(asks[:-1])} and {asks[-1]}"
    whose = "sales rep " if part.column == "rep" else ""
    return {"entity": whose + quote(part.entity), "year": quote(part.year), "asks": listed}


def _share(part: Share, sections: Sequence[str]) -> dict[str, str]:
    country = quote(part.country)
    some, whole = (quote(part.genre), f"of {country}") if part.by_genre else (country, "of all countries")
    return {"some": some, "whole": whole, "period": quote(part.period)}


def _singular(group: str) -> str:
    return "sales rep" if group == "rep" else group


def _best(order: str) -> str:
    return "best" if order == "highest" else "worst"


_FIELDS: Mapping[str, Callable[..., dict[str, str]]] = {
    "rank": _rank,
    "compare": _compare,
    "drill": _drill,
    "series": _series,
    "share": _share,
}


def recipient_text(to: str, who: str, section: str) -> str:
    """Return whom a mail goes to, in words; `who` is a name, or empty when it is the answer of `section`."""
    person = quote(who) if who else f"the sales rep reported as {section}"
    return {"employee": person, "rep": f"the sales rep of {person}", "manager": f"the manager of {person}"}[to]
