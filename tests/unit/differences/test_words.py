"""A difference as text, JSON, page and picture: the same numbers; nothing is fetched, no text becomes markup."""

import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from geartrain.data_commands import app
from geartrain.differences import picture, words
from geartrain.differences.compare import Difference, compare
from geartrain.differences.kinds import Kind
from geartrain.errors import UserError

KIND = Kind("rows", ("rows.jsonl",), ("id",), label="ok", group="task", measure="ok", stratum="family")
NASTY = '</style><script>alert(1)</script>&"'


def write(folder: Path, *, shift: int, count: int = 12) -> Path:
    folder.mkdir()
    rows = [
        {
            "id": number,
            "task": f"t{number // 4}",
            "family": f"f{number % 3}",
            "ok": (number + shift) % 4 < 1 + shift,
            "text": f"{NASTY}{shift}" if number == 1 else "same",
        }
        for number in range(count)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def difference(tmp_path: Path) -> Difference:
    return compare(write(tmp_path / "a", shift=0), write(tmp_path / "b", shift=1, count=14), KIND, names=("A1", "B1"))


def told(difference: Difference) -> str:
    text = io.StringIO()
    Console(file=text, width=80).print(words.to_terminal(difference))
    return text.getvalue()


def test_a_terminal_says_all_of_it_in_eighty_columns(difference: Difference) -> None:
    text = told(difference)
    assert text.startswith("2 added, 0 removed, 4 changed, 8 unchanged\nA A1\nB B1\n")
    assert "3 labels (ok) flipped, 3 of them upwards" in text
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^ok +3 *$", text, re.MULTILINE)
    assert re.search(r"^f0 +4 +5 +\+1", text, re.MULTILINE)


def test_the_same_rows_are_called_the_same(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", shift=0), write(tmp_path / "b", shift=0)
    assert told(compare(a, b, KIND)).startswith("The same 12 rows\n")


def test_json_holds_what_the_terminal_says(difference: Difference) -> None:
    record = json.loads(words.to_json(difference))
    assert (record["added"], record["changed"], record["flips"], record["same"]) == (2, 4, 3, False)
    assert record["strata"]["f0"] == [4, 5]


def test_a_page_fetches_nothing_and_text_stays_text(difference: Difference) -> None:
    page = words.to_page(difference)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert re.findall(r'(?:src|href)="(?!#)', page) == []
    assert "default-src 'none'" in page
    for number in ("2 added", "4 changed", "A1", "B1"):
        assert number in page


def test_a_picture_stands_alone_and_has_a_panel_for_each_answer(difference: Difference) -> None:
    text = picture.draw_file(difference)
    ElementTree.fromstring(text)
    for title in ("Rows", "Mean ok per task", "Rows per family", "How far apart"):
        assert title in text
    assert picture.draw_file(difference) == text, "equal differences give equal bytes"


def test_a_picture_of_rows_alone_is_drawn_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text('{"id": "x"}\n')
    found = compare(tmp_path / "a", tmp_path / "b", Kind("rows", ("rows.jsonl",), ("id",)))
    assert "Rows" in picture.draw_file(found)


@pytest.mark.parametrize("shape", ["table", "json", "html", "svg"])
def test_the_command_writes_any_of_them_to_a_file(shape: str, tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", shift=0), write(tmp_path / "b", shift=1)
    out = tmp_path / "out"
    options = ["--id", "id", "--label", "ok", "--group", "task", "--measure", "ok", "--count-by", "family"]
    done = CliRunner().invoke(app, ["diff", str(a), str(b), *options, "--format", shape, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.output == f"{out}: 0 added, 0 removed, 4 changed, 8 unchanged\n"
    assert out.stat().st_size > 100


def test_an_unknown_format_is_refused_before_anything_is_read() -> None:
    done = CliRunner().invoke(app, ["diff", "a", "b", "--format", "pdf"])
    assert isinstance(done.exception, UserError)
    assert "expected table, json, html or svg" in str(done.exception)
