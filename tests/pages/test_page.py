"""The run page in a real browser: what it shows, says, asks for and complains of; how it is reached by keys."""

import json
import time
from pathlib import Path

import pytest

LONG = "#run=runs%2Flong"
PAGES = {
    "runs": ("", "document.querySelectorAll('tbody tr').length === 3"),
    "curves": (LONG, "document.querySelectorAll('svg.chart path.line').length > 20"),
    "episodes": (f"{LONG}&tab=episodes&at=3&place=1", "!!document.querySelector('ol.turns li')"),
    "results": ("#run=runs%2Fdone&tab=results", "document.querySelectorAll('section').length === 3"),
    "lineage": ("#run=runs%2Fdone&tab=lineage", "document.querySelectorAll('svg.flow rect').length > 9"),
    "settings": (f"{LONG}&tab=settings", "document.querySelectorAll('section').length > 3"),
    "compare": (f"{LONG}&other=runs%2Fother", "document.querySelectorAll('path.dashed').length > 10"),
    "failed": ("#run=runs%2Fother", "document.body.innerText.includes('the loss is <not> finite')"),
}
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
ROWS = "[...document.querySelectorAll('table.episodes tbody a')]"
FOCUSED = "(document.activeElement.className || document.activeElement.name || document.activeElement.textContent)"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1440, False)])
def test_every_page_fits_is_readable_and_complains_of_nothing(name, width, dark, window, site):
    address, ready = PAGES[name]
    with window.page(site + address, width=width, dark=dark) as page:
        page.until(ready)
        assert page.run("document.documentElement.scrollWidth") == width
        assert page.run(CONTRAST) == {}
        assert page.run("document.querySelectorAll('h1').length") == 1
        assert page.run("document.title").endswith("· geartrain")
        assert page.complaints() == []
        assert {url.partition("/")[0] + "//" + url.split("/")[2] for url in page.requests()} == {site.rstrip("/")}


@pytest.mark.parametrize("name", PAGES)
def test_assistive_technology_is_told_what_there_is(name, window, site):
    address, ready = PAGES[name]
    with window.page(site + address) as page:
        page.until(ready)
        names = page.names()
        roles = [role for role, _ in names]
        assert {"main", "banner", "contentinfo", "status", "heading"} <= set(roles)
        asked = ("button", "link", "combobox", "textbox", "slider", "checkbox", "table", "image", "progressbar")
        assert [(role, text) for role, text in names if role in (*asked, "spinbutton", "searchbox") and not text] == []
        ids = page.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))


def test_what_a_model_says_is_text(window, site):
    with window.page(f"{site}{LONG}&tab=episodes&at=0&place=0") as page:
        page.until("!!document.querySelector('ol.turns li')")
        said = page.run("document.querySelector('ol.turns pre.action').textContent")
        assert said.startswith("<img src=x onerror=alert(1)> \\u202edetrever </script><script>")
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
        assert page.run("document.title") == "Episodes of runs/long · geartrain"
        assert page.complaints() == []


def test_a_list_and_an_episode_are_reached_by_keys_alone(window, site):
    with window.page(f"{site}{LONG}&tab=episodes") as page:
        page.until("document.querySelectorAll('table.episodes tbody tr').length === 50")
        stops = []
        for _ in range(40):
            page.press("Tab")
            stops.append(page.run(FOCUSED))
            if page.run("!!document.activeElement.closest('table.episodes tbody')"):
                break
        assert stops[0] == "skip", "the first stop leads past the rest"
        assert {"Curves", "Compare", "iteration", "family", "success", "sort"} <= set(stops)
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
        for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowDown"):
            page.press(key)
        row = page.run(f"{ROWS}.indexOf(document.activeElement)")
        assert row == 2
        page.press("Enter")
        page.until("!!document.querySelector('ol.turns li')")
        assert page.run(f"{ROWS}.indexOf(document.activeElement)") == 2, "the place in the list is kept"
        assert "sibling 2" in page.run("document.querySelector('.detail h2').textContent")
        assert "sibling 2" in page.run("document.getElementById('said').textContent")
        assert len(page.run(f"{ROWS}.filter((one) => one.tabIndex === 0).map((one) => 1)")) == 1


def test_filters_change_the_address_and_the_list(window, site):
    with window.page(f"{site}{LONG}&tab=episodes") as page:
        page.until("document.querySelectorAll('table.episodes tbody tr').length === 50")
        page.run("document.querySelector('[name=success]').value = 'no'")
        page.run("document.querySelector('[name=success]').dispatchEvent(new Event('change', {bubbles: true}))")
        page.until("location.hash.includes('success=no') && !document.querySelector('table.episodes .good')")
        assert page.run("document.querySelectorAll('table.episodes .bad').length") > 3
        page.run("history.back()")
        page.until("document.querySelectorAll('table.episodes tbody tr').length === 50")


def test_the_slider_moves_one_cursor_through_all_curves(window, site):
    with window.page(site + LONG) as page:
        page.until(PAGES["curves"][1])
        page.run("document.getElementById('cursor').focus()")
        before = page.run("document.querySelector('ul.legend b').textContent")
        for _ in range(4):
            page.press("ArrowLeft")
        reading = page.run("document.querySelector('output').textContent")
        assert reading == "7"
        assert page.run("document.querySelectorAll('line.cursor[visibility=visible]').length") > 10
        assert page.run("document.querySelector('ul.legend b').textContent") != before
        assert page.run("document.querySelector('.cursor-line a').getAttribute('href')").endswith("iteration=7")


def test_every_axis_says_how_large_a_change_is(window, site):
    """One number beside a curve says of no change how large it is."""
    with window.page(site + LONG) as page:
        page.until(PAGES["curves"][1])
        counts = page.run(
            """import("./chart.js").then(({ ticks }) => [0, 0.06, 1, -3.7].flatMap((low) =>
                 [0.0031, 0.0164, 0.3, 0.777, 12, 4321].map((span) => ticks(low, low + span, 3).length)))"""
        )
        assert all(2 <= count <= 6 for count in counts), counts


def test_what_a_run_says_appears_without_a_reload(window, site, fleet):
    (path,) = (fleet / "runs/long/.geartrain/live").glob("*.jsonl")
    with window.page(site + LONG) as page:
        page.until(PAGES["curves"][1])
        loaded = page.run("performance.timeOrigin")
        line = json.loads([text for text in path.read_text().splitlines() if '"kind": "iteration"' in text][-1])
        index = line["index"] + 1
        record = {**line["record"], "iteration": index, "kl": 0.5, "alarms": ["kl: far <i>away</i>"]}
        with path.open("a") as file:
            file.write(json.dumps({**line, "time": time.time(), "index": index, "record": record}) + "\n")
        page.until("document.body.innerText.includes('Alarm: kl: far <i>away</i>')")
        page.until(f"document.getElementById('cursor').max === '{index}'")
        assert "far <i>away</i>" in page.until("document.getElementById('said').textContent")
        assert page.run("performance.timeOrigin") == loaded
        assert page.complaints() == []


def test_who_wants_less_motion_gets_none(window, site):
    with window.page(site + LONG, still=True) as page:
        page.until(PAGES["curves"][1])
        assert page.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
