"""The report in a browser: search, filters, order, enlarged pictures, the projection, accessibility."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import SCHEMES, axe_violations, emulate, headless_chromium
from tests.forgetful import forgetful
from vsemb import write_report

pytestmark = pytest.mark.slow

# Queries in view: title of their group -> text or key, rank.
_SHOWN = """
return [...document.querySelectorAll(".group")].map(group => [
  group.querySelector("h3").firstChild.textContent.trim(),
  [...group.querySelectorAll(".query")].map(card => [
    card.querySelector("q")?.textContent ?? card.querySelector("img").title,
    Number(card.querySelector(".rank").textContent.replace(/rank|,/g, ""))])]);
"""
# A point that no other one covers.
_FREE = """
return [...document.querySelectorAll(".plane .point")].find(point => {
  point.scrollIntoView({block: "center"});
  const box = point.getBoundingClientRect();
  return document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2) === point;
});
"""
_INSIDE = """
const [tip, plane] = [".tip", ".plane"].map(name => document.querySelector(name).getBoundingClientRect());
return tip.left >= plane.left && tip.right <= plane.right && tip.top >= plane.top && tip.bottom <= plane.bottom;
"""
_SET = """
const [name, value] = arguments, control = document.querySelector(".filters").elements[name];
control.value = value;
control.dispatchEvent(new Event("input", {bubbles: true}));
"""


@pytest.fixture(scope="module")
def path(tiny_run, scenes, tmp_path_factory) -> Path:
    """A report of a run that knows nothing of some sentences."""
    folder = tmp_path_factory.mktemp("report")
    lost = {"three", "four", "shapes", "objects", "of", "different", "colours", "little"}
    run = forgetful(tiny_run, set(tiny_run.vocabulary.words) - lost, folder / "run")
    return write_report(run, data=scenes, split="train", out=folder / "report.html", shown=2, seed=1).path


@pytest.fixture(scope="module")
def data(path) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    return json.loads(text)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Any]:
    pytest.importorskip("selenium", reason="the extra dev is not installed")
    with headless_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(chromium, path) -> Any:
    emulate(chromium, 1280, "light")
    chromium.get(path.as_uri())
    return chromium


def shown(browser: Any, **controls: str) -> dict[str, list[tuple[str, int]]]:
    """Sets controls of the form, and returns the queries in view by their group."""
    for name, value in controls.items():
        browser.execute_script(_SET, name, value)
    return {title: [(name, rank) for name, rank in cards] for title, cards in browser.execute_script(_SHOWN)}


def test_successes_come_before_failures_and_unknown_words_apart(browser, data) -> None:
    groups = shown(browser)
    assert list(groups) == ["Found first", "Failures", "Unknown words", "No known word"]
    known = {data["texts"][text]: kind for text, _, kind, *_ in data["byText"]}
    for title, kinds in (("Found first", {0}), ("Failures", {0}), ("Unknown words", {2}), ("No known word", {3})):
        assert 0 < len(groups[title]) <= 2 and {known[text] for text, _ in groups[title]} <= kinds
    ranks = [rank for _, rank, kind, *_ in data["byText"] if kind == 0]
    assert [rank for _, rank in groups["Found first"]] == [1, 1]
    assert [rank for _, rank in groups["Failures"]] == sorted(ranks, reverse=True)[:2]
    count = f"{len(data['byText'])} of {len(data['byText'])} queries"
    assert browser.find_element("id", "count").text == count
    # The whole group, in the order that was chosen.
    ordered = shown(browser, order="first", known="0")["Failures"]
    assert [rank for _, rank in ordered] == sorted(rank for rank in ranks if rank > 1)[:2]
    more = browser.find_elements("css selector", ".more")[1]
    more.click()
    failures = shown(browser)["Failures"]
    assert [rank for _, rank in failures] == sorted(rank for rank in ranks if rank > 1)[:50]
    assert browser.execute_script("return document.activeElement.matches('.frame')")


def test_filters_narrow_the_queries(browser, data) -> None:
    all_ranks = [rank for _, rank, *_ in data["byText"]]
    groups = shown(browser, rank="2-5")
    assert {rank for cards in groups.values() for _, rank in cards} <= {2, 3, 4, 5}
    number = sum(2 <= rank <= 5 for rank in all_ranks)
    assert browser.find_element("id", "count").text == f"{number} of {len(all_ranks)} queries"
    assert list(shown(browser, rank="1-1", known="0")) == ["Found first"]
    assert list(shown(browser, rank="1-", known="3")) == ["No known word"]
    groups = shown(browser, known="", text="RED  circ")
    assert groups and all("red" in text and "circ" in text for cards in groups.values() for text, _ in cards)
    assert shown(browser, text="nowhere") == {} and browser.find_element("id", "count").text.startswith("0 of ")
    names = [text for text, _ in shown(browser, text="", order="text")["Unknown words"]]
    assert names == sorted(names)


def test_images_are_queries_too_and_have_classes(browser, data) -> None:
    groups = shown(browser, by="byImage", order="last")
    keys = set(data["keys"])
    assert groups and all(key in keys for cards in groups.values() for key, _ in cards)
    name = data["classes"][0]
    groups = shown(browser, **{"class": name})
    of_class = {key for key, own in zip(data["keys"], data["classes"], strict=True) if own == name}
    assert {key for cards in groups.values() for key, _ in cards} <= of_class
    count = f"{len(of_class)} of {len(data['byImage'])} queries"
    assert browser.find_element("id", "count").text == count


def test_pictures_are_enlarged_by_click_and_by_key(browser, data) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    frame = browser.find_element("css selector", "#groups button.frame")
    frame.click()
    dialog = browser.find_element("css selector", "dialog[open]")
    image = int(frame.get_attribute("data-image"))
    lines = [line.text for line in dialog.find_elements("tag name", "li")]
    assert lines == [data["texts"][text] for text in data["own"][image]] and data["keys"][image] in dialog.text
    assert dialog.find_element("tag name", "img").size["width"] > 2 * frame.size["width"]
    following = browser.find_elements("css selector", "#groups button.frame")[1]
    browser.switch_to.active_element.send_keys(keys.ARROW_RIGHT)
    dialog = browser.find_element("css selector", "dialog[open]")
    assert data["keys"][int(following.get_attribute("data-image"))] in dialog.text
    browser.switch_to.active_element.send_keys(keys.ESCAPE)
    assert not browser.find_elements("css selector", "dialog[open]")
    assert browser.switch_to.active_element == following
    # The pictures of other sections have their names alone.
    other = browser.find_element("css selector", "#arithmetic button.frame")
    browser.execute_script("arguments[0].focus()", other)
    other.send_keys(keys.ENTER)
    dialog = browser.find_element("css selector", "dialog[open]")
    assert other.find_element("tag name", "img").get_attribute("title") in dialog.text


def test_points_show_their_pictures_under_the_pointer_and_by_key(browser, data) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    actions = pytest.importorskip("selenium.webdriver").ActionChains
    points = browser.find_elements("css selector", ".plane .point")
    tip = browser.find_element("css selector", ".tip")
    assert not tip.is_displayed()
    free = browser.execute_script(_FREE)
    actions(browser).move_to_element(free).perform()
    assert tip.is_displayed()
    image = int(free.get_attribute("data-image"))
    assert tip.find_element("tag name", "img").get_attribute("title") == data["keys"][image]
    assert browser.execute_script(_INSIDE)
    # One stop of the key Tab, and arrow keys go to the other points.
    stops = browser.execute_script(
        "return [...document.querySelectorAll('.plane .point')].filter(point => point.tabIndex === 0).length"
    )
    assert stops == 1
    browser.execute_script("document.querySelector('.plane .point').focus()")
    seen = {browser.switch_to.active_element.get_attribute("data-image")}
    for key in 4 * [keys.ARROW_LEFT, keys.ARROW_UP] + 4 * [keys.ARROW_RIGHT, keys.ARROW_DOWN]:
        browser.switch_to.active_element.send_keys(key)
        focused = browser.switch_to.active_element
        assert "point" in focused.get_attribute("class")
        title = tip.find_element("tag name", "img").get_attribute("title")
        assert title == data["keys"][int(focused.get_attribute("data-image"))]
        seen.add(focused.get_attribute("data-image"))
    assert len(seen) > 3 and len(points) > 8
    emulate(browser, 320, "light")
    for number in range(len(points)):
        browser.execute_script("document.querySelectorAll('.plane .point')[arguments[0]].focus()", number)
        assert browser.execute_script(_INSIDE)
    focused = browser.switch_to.active_element
    focused.send_keys(keys.ESCAPE)
    assert not tip.is_displayed()
    focused.send_keys(keys.ENTER)
    assert browser.find_element("css selector", "dialog[open] img").is_displayed()


def test_needs_no_request_and_has_no_violation(browser) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    widths = browser.execute_script("return [...document.images].map(one => one.naturalWidth)")
    assert len(widths) > 60 and min(widths) > 0
    requests = "return performance.getEntriesByType('resource').filter(one => !one.name.startsWith('data:')).length"
    assert browser.execute_script(requests) == 0
    focused = "const it = document.activeElement; return [it.hash, getComputedStyle(it).outlineStyle]"
    for target in ("#content", "#recall"):
        browser.switch_to.active_element.send_keys(keys.TAB)
        assert browser.execute_script(focused) == [target, "solid"]
    for scheme, dark in zip(SCHEMES, (False, True), strict=True):
        for width in (1280, 320):
            emulate(browser, width, scheme)
            colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 100) == dark
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            for by in ("byText", "byImage"):
                shown(browser, by=by)
                assert axe_violations(browser) == []
            browser.find_element("css selector", "#groups button.frame").click()
            assert axe_violations(browser) == []
            browser.find_element("css selector", "dialog button").click()
    # Images of a query stand beside each other.
    shown(browser, by="byText")
    emulate(browser, 1280, "light")
    places = "return [...document.querySelector('.by-text ol').children].map(one => one.offsetTop)"
    assert len(set(browser.execute_script(places))) == 1
    assert not browser.get_log("browser")
