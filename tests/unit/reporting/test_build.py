"""The report: one file, nothing fetched, nothing executed, whatever the model wrote and whatever is missing."""

import io
import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from rich.console import Console

from geartrain import artifacts, withdrawals
from geartrain.errors import UserError
from geartrain.reporting.build import build_report, render_report, summary
from tests.fakes import workspace

NO_END = {"meta", "br", "path", "use", "rect", "circle", "img", "line"}


class Page(HTMLParser):
    """Elements, attributes, ids and visible text of a page; checks that elements nest."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.attributes, self.ids, self.text, self.open = [], [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in NO_END:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in NO_END:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in NO_END:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return workspace.build(tmp_path_factory.mktemp("report") / "run")


@pytest.fixture(scope="module")
def html(finished):
    return render_report(finished)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_report_is_one_file_in_reports(finished, html):
    path = build_report(finished)
    assert path == finished / "reports" / "index.html"
    assert path.read_text(encoding="utf-8") == html


def test_nothing_is_fetched(html, page):
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "image"} & set(page.elements)
    for tag, name, value in page.attributes:
        assert "//" not in value, (tag, name, value)
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            assert value.startswith("#"), (tag, name, value)
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))


def test_policy_forbids_whatever_would_slip_through(page):
    (policy,) = [value for tag, name, value in page.attributes if name == "content" and "default-src" in value]
    assert "default-src 'none'" in policy
    assert "script" not in policy


def test_ids_are_unique_and_references_resolve(html, page):
    assert len(page.ids) == len(set(page.ids))
    wanted = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html))
    assert wanted <= set(page.ids)


def test_text_of_a_model_stays_text(tmp_path):
    written = [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)> {{ 7 * 7 }}{% raw %}',
        "</pre></li></ol><iframe src='https://example.test'></iframe>",
        '{"name": "</style><svg onload=alert(1)>", "arguments": {"<b>": "</title><script>"}}',
        "pay \u202eevil\u202c \x1b[31m\x00",
    ]
    html = render_report(workspace.build(tmp_path / "run", actions=written))
    page = Page(html)
    assert not {"script", "img", "iframe", "b"} & set(page.elements)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    for text in written[:3]:
        assert text in page.words()
    assert '</style><svg onload=alert(1)>(<b>="</title><script>")' in page.words()
    assert "pay \\u202eevil\\u202c \\u001b[31m\\u0000" in html
    assert not set("\u202e\u202c\x1b\x00") & set(html)


def test_headline_numbers_are_those_of_the_tables(page):
    words = page.words()
    assert "Test success rose from 31 % to 58 %" in words
    assert "+27.0 points [+20.0, +34.0]" in words
    assert "35 % → 62 %" in words
    assert "Promoted" in words


def test_every_figure_says_seed_sample_and_command(html):
    for section, command in (
        ("results", "evaluation"),
        ("families", "evaluation"),
        ("learning", "policy"),
        ("episode", "policy"),
    ):
        body = html.split(f'<section id="{section}">')[1].split("</section>")[0]
        assert "Seed 7 ·" in body
        assert f"geartrain stage {command} &amp;&amp; geartrain report" in body
    assert "120 test, 48 ood, 120 paraphrase tasks; 1 greedy and 2 sampled episodes per task and model" in html
    assert "16 tasks with 8 siblings each, per iteration" in html


def test_lineage_names_every_artifact_by_its_digest(html, finished):
    from geartrain.artifacts import read_manifest

    for folder in workspace.FOLDERS.values():
        assert read_manifest(finished / folder).digest in html


def test_failed_gate_says_why(tmp_path):
    words = Page(render_report(workspace.build(tmp_path / "run", promoted=False))).words()
    assert "No gain shown: 31 % before, 32 % after" in words
    assert "Not promoted" in words
    assert "-0.0600 is not > 0" in words


def test_what_was_withdrawn_is_said_first_with_what_it_reached(tmp_path, monkeypatch):
    monkeypatch.setenv(withdrawals.PLACES, str(tmp_path / "withdrawn"))
    (tmp_path / "withdrawn").mkdir()
    run = workspace.build(tmp_path / "run")
    told = "Withdrawn: collect"
    assert told not in Page(render_report(run)).words()
    digest = artifacts.read_manifest(run / "data/rollouts").digest
    withdrawals.record(
        tmp_path / "withdrawn", digest, "withdraw", name="r", reason="asked <b>for</b>", by="ada", at="2026-03-01"
    )
    words = Page(render_report(run)).words()
    assert f"{told} ({digest[:12]}) was withdrawn on 2026-03-01 by ada: asked <b>for</b>." in words
    assert "It reached collect, preferences, critic: do not use them." in words
    text = io.StringIO()
    Console(file=text, width=200).print(summary(run))
    assert told in text.getvalue()


def test_the_gate_says_who_has_signed(tmp_path):
    folder = workspace.build(tmp_path / "run")
    assert "The model is not signed" in Page(render_report(folder)).words()
    signature = {"verificationMaterial": {"publicKey": {"hint": "abcdef0123456789"}}}
    (folder / "models/promoted/model.sig").write_text(json.dumps(signature))
    assert "names the key abcdef012345 ;" in Page(render_report(folder)).words()


def test_a_fall_is_called_a_fall(tmp_path, monkeypatch):
    real = workspace.tables
    monkeypatch.setattr(workspace, "tables", lambda gain: real(-0.2))
    assert "Test success fell from 31 % to 11 %" in render_report(workspace.build(tmp_path / "run"))


@pytest.mark.parametrize("stages", [tuple(workspace.FOLDERS)[:count] for count in (1, 4, 8)])
def test_what_is_missing_says_which_stage_to_run(tmp_path, stages):
    words = Page(render_report(workspace.build(tmp_path / "run", stages=stages))).words()
    for stage in set(workspace.FOLDERS) - set(stages):
        if stage not in ("tasks", "collect"):
            assert f"geartrain stage {stage}" in words, stage


def test_failed_stage_says_its_reason(tmp_path):
    folder = workspace.build(tmp_path / "run", stages=("tasks", "warm_start"), failed="collect")
    assert "Stage collect failed: the loss is <not> finite" in Page(render_report(folder)).words()


def test_empty_folder_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="geartrain run"):
        build_report(tmp_path)


def test_equal_workspaces_give_equal_reports(html, finished, tmp_path):
    copy = tmp_path / finished.name
    shutil.copytree(finished, copy, ignore=shutil.ignore_patterns("index.html"))
    assert render_report(copy) == html


def test_broken_files_are_left_out_not_raised(tmp_path):
    folder = workspace.build(tmp_path / "run")
    (folder / "models/policy/history.jsonl").write_text('{"iteration": 0, "success": NaN}\n{"iteration": 1, "succ')
    (folder / "reports/evaluation/tables.json").write_text("{torn")
    (folder / "models/critic/manifest.json").write_text("{torn")
    words = Page(render_report(folder)).words()
    assert "A run in progress" in words
    assert "geartrain stage critic" in words


def test_summary_fits_a_terminal_and_says_the_main_numbers(finished):
    out = io.StringIO()
    Console(file=out, width=80).print(summary(finished))
    text = out.getvalue()
    assert "Test success rose from 31 % to 58 %" in text
    assert re.search(
        r"test +sampled +31\.0 \[23\.5, 38\.5\] +58\.0 \[50\.5, 65\.5\] +\+27\.0 \[\+20\.0, \+34\.0\]", text
    )
    assert "…" not in text
    assert "Gate: promoted" in text
    assert "longest: policy 3 min 56 s" in text


def test_summary_of_an_unfinished_run_says_what_is_missing(tmp_path):
    out = io.StringIO()
    folder = workspace.build(tmp_path / "run", stages=("tasks",), failed="evaluation")
    Console(file=out, width=100).print(summary(folder))
    assert "Stage evaluation failed" in out.getvalue()
    assert "geartrain stage promotion" in out.getvalue()
