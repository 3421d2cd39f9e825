"""What counts as success, and the near misses that do not."""

import pytest

from geartrain.environments.analyst.verification import Entry, Fact, Mail, describe, fault, judge, read_literal, states

FACTS = {"top": Fact("label", "USA", 120.0), "gain": Fact("value", None, 50.0)}
REPORT = {"top": Entry("USA", 120.0), "gain": Entry(None, 50.0)}
MAIL = Mail("jane@shop.com", "report", REPORT)


def reasons(report=REPORT, outbox=(), finished=True, recipient=None) -> list[str]:
    return judge(FACTS, recipient, report, outbox, finished)


def test_the_right_state_is_a_success() -> None:
    assert reasons() == []
    assert reasons(recipient="jane@shop.com", outbox=[MAIL]) == []
    assert reasons(recipient="jane@shop.com", outbox=[Mail("Jane@Shop.com", "", REPORT)]) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"top": Entry("Canada", 120.0)}, "section 'top' is 'Canada' 120, not 'USA' 120"),
        ({"top": Entry("USA", 122.4)}, "section 'top' is 'USA' 122.4, not 'USA' 120"),
        ({"top": Entry(None, 120.0)}, "section 'top' is 120, not 'USA' 120"),
        ({"gain": Entry(None, 51.0)}, "section 'gain' is 51, not 50"),
        ({"gain": Entry(None, -50.0)}, "section 'gain' is -50, not 50"),
        ({"gain": Entry("50 or so", None)}, "section 'gain' is '50 or so', not 50"),
        ({"gain": Entry(None, float("nan"))}, "section 'gain' is nan, not 50"),
        ({"gain": Entry(None, float("inf"))}, "section 'gain' is inf, not 50"),
        ({"gain": None}, "section 'gain' missing"),
    ],
)
def test_a_near_miss_of_the_report(changes: dict[str, Entry | None], reason: str) -> None:
    report = {name: entry for name, entry in {**REPORT, **changes}.items() if entry is not None}
    assert reasons(report) == [reason]


def test_sections_that_nobody_asked_for_are_ignored() -> None:
    assert reasons({**REPORT, "second": Entry("Mars", 1.0)}) == []


def test_not_finished() -> None:
    assert reasons(finished=False) == ["not finished"]


@pytest.mark.parametrize(
    ("outbox", "reason"),
    [
        ([], "mail: 0 sent, not 1"),
        ([MAIL, MAIL], "mail: 2 sent, not 1"),
        ([Mail("bob@shop.com", "report", REPORT)], "mail: sent to bob@shop.com, not jane@shop.com"),
        (
            [Mail("jane@shop.com", "report", {"top": REPORT["top"]})],
            "mail: the report was not complete and right when it was sent",
        ),
        (
            [Mail("jane@shop.com", "report", {**REPORT, "top": Entry("Canada", 1.0)})],
            "mail: the report was not complete and right when it was sent",
        ),
    ],
)
def test_a_near_miss_of_the_mail(outbox: list[Mail], reason: str) -> None:
    assert reasons(outbox=outbox, recipient="jane@shop.com") == [reason]


def test_a_mail_that_nobody_asked_for() -> None:
    assert reasons(outbox=[MAIL]) == ["mail: nobody asked for one"]


@pytest.mark.parametrize(
    ("fact", "literal", "right"),
    [
        (Fact("label", "São Paulo", 1.0), "são  paulo", True),
        (Fact("label", "São Paulo", 1.0), "Sa\u0303o Paulo", True),  # the same letters, composed otherwise
        (Fact("label", "São Paulo", 1.0), "Sao Paulo", False),
        (Fact("label", "USA", 120.0), "USA: 120", True),
        (Fact("label", "USA", 120.0), "USA (120.4)", True),
        (Fact("label", "USA", 120.0), "USA 99", False),
        (Fact("label", "USA", 120.0), "USA or Canada", False),
        (Fact("label", "Blink 182", 7.0), "Blink 182", True),
        (Fact("label", "2010-07", 7.0), "July 2010", True),
        (Fact("label", "2010-07", 7.0), "july", True),
        (Fact("label", "2010-07", 7.0), "2010-07", True),
        (Fact("label", "2010-07", 7.0), "July 2011", False),
        (Fact("label", "2010-07", 7.0), "June 2010", False),
        (Fact("value", None, 1234.5), "1,234.50", True),
        (Fact("value", None, 1234.5), "$1234.5", True),
        (Fact("value", None, 12.5), "12.5%", True),
        (Fact("value", None, 12.5), "12.6", True),
        (Fact("value", None, 12.5), "12.7", False),
        (Fact("value", None, 0.0), "0.009", True),
        (Fact("value", None, 0.0), "0.02", False),
        (Fact("value", None, 12.5), "1e1", False),
        (Fact("value", None, 12.5), "nan", False),
    ],
)
def test_literals(fact: Fact, literal: str, right: bool) -> None:
    assert (fault(fact, read_literal(literal)) is None) is right


def test_a_value_may_be_one_percent_off_and_no_more() -> None:
    fact = Fact("value", None, 200.0)
    assert fault(fact, read_literal(202.0)) is None
    assert fault(fact, read_literal(198.0)) is None
    assert fault(fact, read_literal(202.1)) is not None
    assert fault(fact, read_literal(204)) is not None


def test_a_result_must_state_the_fact_exactly() -> None:
    assert states(FACTS["top"], Entry("usa", 120.0000001))
    assert not states(FACTS["top"], Entry("USA", 120.5))
    assert not states(FACTS["top"], Entry(None, 120.0))
    assert not states(FACTS["top"], Entry("Canada", 120.0))
    assert states(FACTS["gain"], Entry("anything", 50.0))


def test_entries_are_described() -> None:
    assert describe(Entry("USA", 12.0)) == "'USA' 12"
    assert describe(Entry("Côte d'Ivoire", None)) == "'Côte d''Ivoire'"
    assert describe(Entry(None, None)) == "empty"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("'USA' 12.5", Entry("USA", 12.5)),
        ("'USA'", Entry("USA", None)),
        ("'Côte d''Ivoire' 1,200", Entry("Côte d'Ivoire", 1200.0)),
        ("'USA' about 12", Entry("'USA' about 12", None)),
        ("'USA' 1.2.3", Entry("'USA' 1.2.3", None)),
        ("USA", Entry("USA", None)),
        ("12", Entry(None, 12.0)),
    ],
)
def test_a_literal_may_be_what_a_tool_has_shown(text: str, entry: Entry) -> None:
    assert read_literal(text) == entry
