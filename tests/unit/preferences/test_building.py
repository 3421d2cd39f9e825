"""Files in, one checked data set out: every form, every kind of file, every defect that real files have."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.errors import UserError
from geartrain.preferences.building import QUARANTINE, RECORDS, Options, build
from geartrain.preferences.records import SCHEMA
from geartrain.preferences.sources import SourceFile
from tests.fakes import preference_files as files

LENIENT = {"max_rejected_share": 1.0}


def run(
    folder: Path, paths: Sequence[Path | SourceFile], **options: Any
) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """Build; return the report, the records and the quarantine."""
    output = folder / "out"
    output.mkdir(parents=True, exist_ok=True)
    sources = [path if isinstance(path, SourceFile) else SourceFile(path) for path in paths]
    report = build(sources, Options(**options), output=output, work=folder / "work")
    assert not (folder / "work").exists()
    table = pq.read_table(output / RECORDS)
    assert table.schema == SCHEMA
    quarantine = [json.loads(line) for line in (output / QUARANTINE).read_text().splitlines()]
    assert report["kept"] == len(table)
    assert report["records"] == len(table) + len(quarantine)
    assert sum(report["left_out"].values()) == len(quarantine)
    return report, table.to_pylist(), quarantine


def jsonl(folder: Path, rows: list[Any], name: str = "data.jsonl") -> Path:
    return files.write(folder / name, files.text_of(".jsonl", rows))


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", files.KINDS)
@pytest.mark.parametrize("name", files.MAKERS)
def test_each_form_in_each_kind_of_file_gives_the_same_records(
    tmp_path: Path, name: str, kind: str, packing: str
) -> None:
    form, _ = files.MAKERS[name]
    count = 12 if name == "helpsteer2" else 6
    path = files.write(tmp_path / f"x{kind}{packing}", files.text_of(kind, files.rows(name, count)))
    report, records, quarantine = run(tmp_path, [path])
    assert (quarantine, len(records)) == ([], 6)
    assert report["files"][path.name]["form"] == form
    for number, record in enumerate(records):
        asked = record["prompt"][0]["content"]
        assert asked == files.question(number)
        if name == "stepwise":
            (answer,) = record["candidates"]
            assert record["label"] is None
            assert [step["label"] for step in answer["steps"]] == [1.0, 1.0, float(number % 2)]
        elif name == "prm800k":
            best = record["candidates"][record["label"]]
            assert best["messages"][0]["content"] == f"Count to {number}.\nSo it is {number}."
            assert [step["label"] for step in best["steps"]] == [1.0, 1.0]
        else:
            assert record["candidates"][record["label"]]["messages"][-1]["content"] == files.good(number)


def broken_line(data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[2] = lines[2][:-20]
    return b"\n".join(lines)


def latin_line(data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[2] = lines[2].replace(b"somebody", b"caf\xe9 somebody")
    return b"\n".join(lines)


DEFECTS: dict[str, tuple[Callable[[bytes], bytes], str | None]] = {
    "mark": (lambda data: b"\xef\xbb\xbf" + data, None),
    "crlf": (lambda data: data.replace(b"\n", b"\r\n"), None),
    "no_last_newline": (lambda data: data.rstrip(), None),
    "empty_lines": (lambda data: data.replace(b"\n", b"\n\n\n"), None),
    "utf16": (lambda data: data.decode().encode("utf-16"), None),
    "utf32": (lambda data: data.decode().encode("utf-32"), None),
    "latin_1_in_one_line": (latin_line, "not_utf8"),
    "broken_line": (broken_line, "broken_json"),
}


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("kind", [".jsonl", ".json", ".csv"])
def test_a_defect_of_the_file_costs_its_own_record_at_most(
    tmp_path: Path, kind: str, defect: str, packing: str
) -> None:
    spoil, reason = DEFECTS[defect]
    rows = files.rows("pairs", 8)
    data = files.text_of(kind, rows)
    if kind == ".json":
        data = ("[" + ",\n".join(json.dumps(row) for row in rows) + "\n]").encode()
    if (kind, defect) == (".csv", "broken_line"):
        reason = "broken_csv"
        data = data.replace(files.bad(2).encode(), b"one, two, three")  # a comma that nobody quoted
    else:
        data = spoil(data)
    _, records, quarantine = run(tmp_path, [files.write(tmp_path / f"x{kind}{packing}", data)])
    assert len(records) == 8 - (reason is not None)
    assert [entry["reason"] for entry in quarantine] == ([] if reason is None else [reason])
    if reason is not None and kind != ".json":
        line = 3 + (kind == ".csv" and reason == "broken_csv")
        assert quarantine[0]["place"] == line


def spoilt(name: str, number: int, **changes: Any) -> dict[str, Any]:
    return {**files.MAKERS[name][1](number), **changes}


CELLS = {
    "missing_key": ({"chosen": None}, "missing_key"),
    "nested_list": ({"chosen": [[{"role": "assistant", "content": "x"}]]}, "nested_list"),
    "list_of_texts": ({"rejected": ["a", "b"]}, "not_a_message"),
    "number": ({"rejected": 7}, "not_text"),
    "nan": ({"chosen": float("nan")}, "not_text"),
    "empty": ({"chosen": "  \n "}, "empty_text"),
    "unknown_role": ({"chosen": [{"role": "wizard", "content": "x"}]}, "unknown_role"),
    "identical": ({"chosen": "same", "rejected": "same"}, "identical_answers"),
    "equal_once_read": ({"chosen": "The  Same words.", "rejected": "the same\nwords."}, "equal_once_cut"),
    "nan_score": ({"score_chosen": float("nan"), "score_rejected": 1.0}, "score_not_finite"),
    "infinite_score": ({"score_chosen": float("inf"), "score_rejected": 1.0}, "score_not_finite"),
    "score_in_words": ({"score_chosen": "good", "score_rejected": 1.0}, "score_not_a_number"),
    "against_label": ({"score_chosen": 1.0, "score_rejected": 2.0}, "scores_against_label"),
    "tie": ({"score_chosen": 2.0, "score_rejected": 2.0}, "tie"),
    "prompt_is_a_number": ({"prompt": 3}, "not_text"),
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_defect_of_a_record_is_named_with_its_line(tmp_path: Path, cell: str) -> None:
    changes, reason = CELLS[cell]
    rows = [*files.rows("pairs", 3), spoilt("pairs", 3, **changes), *[files.pairs(n) for n in range(4, 7)]]
    _, records, quarantine = run(tmp_path, [jsonl(tmp_path, rows)])
    assert len(records) == 6
    assert [(entry["source"], entry["place"], entry["reason"]) for entry in quarantine] == [("data.jsonl", 4, reason)]


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("hh", {"chosen": "no turns", "rejected": files.hh(1)["rejected"]}, "not_a_transcript"),
        ("hh", {"chosen": "\n\nHuman: a\n\nAssistant: ", "rejected": "\n\nHuman: a\n\nAssistant: b"}, "empty_text"),
        ("hh", {"chosen": "\n\nHuman: a\n\nAssistant: c", "rejected": "\n\nHuman: b\n\nAssistant: d"}, "no_prompt"),
        ("ultrafeedback", {"instruction": "q", "completions": []}, "lone_answer"),
        ("ultrafeedback", {"instruction": "q", "completions": [[1]]}, "nested_list"),
        ("ultrafeedback", {"completions": files.ultrafeedback(1)["completions"]}, "missing_key"),
        ("helpsteer2", {"prompt": "q", "response": "r", "helpfulness": 9}, "score_out_of_range"),
        ("helpsteer2", {"prompt": "q", "response": "r", "helpfulness": "NaN"}, "score_not_finite"),
        ("helpsteer2", {"prompt": "alone", "response": "r", "helpfulness": 2}, "lone_answer"),
        ("nectar", {"prompt": "q", "answers": [{"answer": "a", "rank": 1}]}, "missing_key"),
        ("nectar", {"prompt": "q", "answers": [{"answer": t, "rank": 1} for t in "ab"]}, "tie"),
        ("ab", {"prompt": "q", "response_a": "a", "response_b": "b", "winner": "tie (bothbad)"}, "tie"),
        ("ab", {"prompt": "q", "response_a": "a", "response_b": "b", "winner": "purple"}, "verdict_unknown"),
        ("ab", {"prompt": "q", "response_a": "a", "response_b": "b", "winner": None}, "missing_key"),
        ("prm800k", {"question": {"problem": "q"}, "label": {"steps": []}}, "missing_key"),
        ("prm800k", {"question": None, "label": {"steps": [1]}}, "missing_key"),
        ("prm800k", {"question": {"problem": "q"}, "label": {"steps": [[1]]}}, "nested_list"),
        ("stepwise", {"prompt": "q", "completions": ["a", "b"], "labels": [1]}, "labels_not_aligned"),
        ("records", {"prompt": "q", "candidates": []}, "missing_key"),
        ("records", {"prompt": "q", "candidates": [{"messages": "a"}], "label": 3}, "verdict_unknown"),
    ],
)
def test_a_defect_of_each_form_is_named(tmp_path: Path, name: str, row: dict[str, Any], reason: str) -> None:
    _, records, quarantine = run(tmp_path, [jsonl(tmp_path, [*files.rows(name, 8), row])])
    assert len(records) == (4 if name == "helpsteer2" else 8)
    assert [(entry["place"], entry["reason"]) for entry in quarantine] == [(9, reason)]


def test_lines_that_are_no_object_and_half_a_character_are_left_out(tmp_path: Path) -> None:
    lines = files.text_of(".jsonl", files.rows("pairs", 5)).decode()
    odd = '[1]\n3\nnull\n{"prompt": "q", "chosen": "\\ud83d", "rejected": "b"}\n'
    _, records, quarantine = run(tmp_path, [files.write(tmp_path / "x.jsonl", (lines + odd).encode())])
    assert len(records) == 5
    reasons = [entry["reason"] for entry in quarantine]
    assert sorted(reasons) == ["lone_surrogate", "nested_list", "not_an_object", "not_an_object"]


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_what_comes_before_the_end_of_a_file_that_was_cut_off_is_kept(tmp_path: Path, packing: str) -> None:
    path = files.write(tmp_path / f"x.jsonl{packing}", files.text_of(".jsonl", files.rows("pairs", 10_000)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 9 // 10])
    report, records, _ = run(tmp_path, [path], near=False)
    assert len(records) > 4_000
    assert report["left_out"].keys() <= {"cut_off", "broken_json"}
    assert "cut_off" in report["left_out"]


def test_an_array_whose_brackets_do_not_match_costs_one_element(tmp_path: Path) -> None:
    parts = [json.dumps(row) for row in files.rows("pairs", 9)]
    parts[4] = parts[4].replace('"chosen": ', '"chosen": [[')
    _, records, quarantine = run(tmp_path, [files.write(tmp_path / "x.json", f"[{','.join(parts)}]".encode())])
    assert len(records) == 8
    assert [(entry["place"], entry["reason"]) for entry in quarantine] == [
        (sum(map(len, parts[:4])) + 5, "broken_json")
    ]


def test_an_array_is_cut_right_wherever_its_chunks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**row, "chosen": f'{row["chosen"]} \\ "}}], [{{" é'} for row in files.rows("pairs", 12)]
    path = files.write(tmp_path / "x.json", files.text_of(".json", rows))
    for size in (7, 64, 1000):
        monkeypatch.setattr("geartrain.preferences.opening.CHUNK", size)
        _, records, quarantine = run(tmp_path, [path])
        assert (len(records), quarantine) == (12, [])


@pytest.mark.parametrize("kind", [".jsonl", ".json", ".csv"])
def test_an_empty_file_beside_another_is_no_fault(tmp_path: Path, kind: str) -> None:
    empty = files.write(tmp_path / f"empty{kind}", b"")
    report, records, _ = run(tmp_path, [empty, jsonl(tmp_path, files.rows("pairs", 3))])
    assert len(records) == 3
    assert report["files"][empty.name] == {"form": "", "records": 0, "licence": ""}
    with pytest.raises(UserError, match=r"no record that can be used \(the files are empty"):
        run(tmp_path, [empty])


def test_a_parquet_file_that_is_none_says_so(tmp_path: Path) -> None:
    other = files.write(tmp_path / "x.parquet", b"PAR1 not really")
    _, _, quarantine = run(tmp_path, [other, jsonl(tmp_path, files.rows("pairs", 3))])
    assert [entry["reason"] for entry in quarantine] == ["broken_parquet"]


def test_an_encoding_that_no_mark_tells_may_be_named(tmp_path: Path) -> None:
    rows = [{**row, "chosen": row["chosen"] + " café"} for row in files.rows("pairs", 3)]
    path = files.write(tmp_path / "x.jsonl", files.text_of(".jsonl", rows).decode().encode("cp1252"))
    _, records, _ = run(tmp_path, [SourceFile(path, encoding="cp1252")])
    assert all("café" in record["candidates"][0]["messages"][0]["content"] for record in records)
    with pytest.raises(UserError, match=r"not_utf8.*x\.jsonl:1"):
        run(tmp_path, [path])


def test_too_much_loss_stops_the_build_and_says_what(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [*files.rows("pairs", 4), *[spoilt("pairs", n, chosen=None) for n in range(4, 10)]])
    with pytest.raises(
        UserError, match=r"6 of 10 records would be left out \(6 missing_key\).*data.jsonl:5.*raise the"
    ):
        run(tmp_path, [path])
    assert len(run(tmp_path, [path], max_rejected_share=0.6)[1]) == 4


def test_an_unknown_form_is_an_error_that_lists_the_forms(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"text": "a", "stars": 3}])
    with pytest.raises(UserError, match=r"keys of the first record: stars, text(.|\n)*--form(.|\n)*nectar"):
        run(tmp_path, [path])
    with pytest.raises(UserError, match="no form 'hhh'; did you mean 'hh'"):
        run(tmp_path, [SourceFile(path, form="hhh")])
    with pytest.raises(UserError, match=r"no record that can be used"):
        run(tmp_path, [SourceFile(path, form="pairs")])


def test_duplicates_contradictions_and_doubled_ids_are_left_out(tmp_path: Path) -> None:
    rows = [{"id": f"n{n}", **files.pairs(n)} for n in range(10)]
    again = {"id": "other", **files.pairs(2)}
    swapped = {"id": "swap", **files.pairs(3), "chosen": files.bad(3), "rejected": files.good(3)}
    doubled = {"id": "n4", **files.pairs(40)}
    near = {"id": "near", **files.pairs(5), "chosen": " ".join(f"word{i}" for i in range(90))}
    rows[5] = {**near, "id": "n5"}
    near = {**near, "chosen": near["chosen"] + " end"}
    _, records, quarantine = run(tmp_path, [jsonl(tmp_path, [*rows, again, swapped, doubled, near])])
    assert [(entry["place"], entry["reason"]) for entry in quarantine] == [
        (4, "contradiction"),
        (11, "exact_duplicate"),
        (12, "contradiction"),
        (13, "duplicate_id"),
        (14, "near_duplicate"),
    ]
    assert len(records) == 9
    assert len(run(tmp_path, [jsonl(tmp_path, [*rows, near])], near=False)[1]) == 11


def test_the_same_answers_in_another_order_are_a_duplicate_and_no_contradiction(tmp_path: Path) -> None:
    flipped = {"prompt": files.question(1), "response_a": files.bad(1), "response_b": files.good(1), "winner": "B"}
    _, _, quarantine = run(tmp_path, [jsonl(tmp_path, [*files.rows("ab", 4), flipped])])
    assert [entry["reason"] for entry in quarantine] == ["exact_duplicate"]


def test_a_contradiction_inside_lists_of_ranks_is_found(tmp_path: Path) -> None:
    other = files.nectar(2)
    other["answers"] = [{**answer, "rank": 4 - answer["rank"]} for answer in other["answers"]]
    _, records, quarantine = run(tmp_path, [jsonl(tmp_path, [*files.rows("nectar", 5), other])])
    assert [(entry["place"], entry["reason"]) for entry in quarantine] == [(3, "contradiction"), (6, "contradiction")]
    assert len(records) == 4


def test_prompts_that_give_held_out_ones_away_are_left_out(tmp_path: Path) -> None:
    rivers = "Name the three rivers that meet in the old town of Passau and say which is the longest"
    held_out = [rivers, files.question(3)]
    rows = files.rows("pairs", 6)
    rows[1]["prompt"] = f"Please answer shortly. {rivers}, would you? I am writing a guide for hikers and need it."
    _, _, quarantine = run(tmp_path, [jsonl(tmp_path, rows)], held_out=held_out)
    assert [(entry["place"], entry["reason"]) for entry in quarantine] == [
        (2, "leaks_into_held_out"),
        (4, "leaks_into_held_out"),
    ]
    assert len(run(tmp_path, [jsonl(tmp_path, rows)], held_out=held_out, near=False)[1]) == 4


def test_bias_languages_and_personal_data_are_reported(tmp_path: Path) -> None:
    rows = files.rows("ab", 40)
    rows[0]["prompt"] += " Write to jo@example.com or +1 415-555-2671."
    rows[1]["prompt"] = "Wie kann ich das mit der Bank klären, und was muss ich dafür haben?"
    report, records, _ = run(tmp_path, [SourceFile(jsonl(tmp_path, rows), licence="cc-by-4.0")])
    assert report["length_bias"]["share"] == 1.0
    assert report["length_bias"]["low"] > 0.9
    assert report["position_bias"]["share"] == 0.5
    assert report["flags"] == {"email": 1, "phone": 1}
    assert report["languages"] == {"en": 39, "de": 1}
    assert report["licences"] == {"cc-by-4.0": 40}
    assert any("longer one in 100%" in line for line in report["warnings"])
    assert records[0]["flags"] == ["email", "phone"]


def test_what_was_built_can_be_built_from(tmp_path: Path) -> None:
    _, records, _ = run(tmp_path / "a", [jsonl(tmp_path, files.rows("ultrafeedback", 5))])
    _, others, _ = run(tmp_path / "b", [tmp_path / "a/out" / RECORDS])
    told = [{k: v for k, v in record.items() if k not in {"source", "place"}} for record in records]
    assert [{k: v for k, v in record.items() if k not in {"source", "place"}} for record in others] == told


def variants(number: int) -> list[str]:
    """Return prompts that are near each other, more or less."""
    words = files.question(number).split()
    return [" ".join([*words, *(f"tail{number}{i}" for i in range(more))]) for more in (0, 1, 2, 4, 7)]


@st.composite
def prompts(draw: st.DrawFn) -> list[str]:
    picks = st.tuples(st.integers(0, 5), st.integers(0, 4))
    chosen = draw(st.lists(picks, min_size=2, max_size=14))
    mixed = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=3))
    bridges = [f"{files.question(a)} {files.question(b)}" for a, b in mixed]
    return draw(st.permutations([*(variants(a)[b] for a, b in chosen), *bridges]))


def build_prompts(folder: Path, texts: Sequence[str], **options: Any) -> dict[str, str]:
    """Return prompt -> split of what is kept."""
    rows = [
        {"prompt": text, "chosen": f"yes {place} {hash(text)}", "rejected": "no"} for place, text in enumerate(texts)
    ]
    folder.mkdir(exist_ok=True)
    _, records, _ = run(folder, [jsonl(folder, rows)], **LENIENT, validation_share=0.5, **options)
    found: dict[str, str] = {}
    for record in records:
        assert found.setdefault(record["prompt"][0]["content"], record["split"]) == record["split"]
    return found


@settings(max_examples=25, deadline=None)
@given(texts=prompts(), data=st.data())
def test_growth_moves_no_old_prompt_and_near_prompts_share_a_split(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("growth")
    cut = data.draw(st.integers(1, len(texts) - 1))
    old = build_prompts(folder / "old", texts[:cut])
    appended = build_prompts(folder / "appended", texts)
    grown = build_prompts(folder / "grown", texts[::-1], earlier=folder / "old/out" / RECORDS)
    for later in (appended, grown):
        assert {text: later[text] for text in old.keys() & later.keys()} == {
            text: old[text] for text in old.keys() & later.keys()
        }
        assert old.keys() <= later.keys()
        assert not shared_bands(later)


def shared_bands(split_by_prompt: dict[str, str]) -> list[tuple[str, str]]:
    """Return near prompts that lie in two splits."""
    import pyarrow as pa

    from geartrain.preferences.minhash import prompt_bands, signatures
    from geartrain.preferences.words import words_of

    texts = list(split_by_prompt)
    bands = prompt_bands(signatures(words_of(pa.array(texts, pa.string()))))
    return [
        (one, other)
        for i, one in enumerate(texts)
        for j, other in enumerate(texts[:i])
        if split_by_prompt[one] != split_by_prompt[other] and any(band[i] == band[j] for band in bands)
    ]
