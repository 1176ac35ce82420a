"""`llamita report`, and its page in a browser of a phone's size and of a desk's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamita.cli.main import run
from llamita.training.run import train
from tests.training.recipes import small_recipe
from tests.training.reports import make_run

CHROMIUM = shutil.which("chromium")


def test_the_path_of_the_page_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "run")
    assert run(["report", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(folder / "report.html")
    assert "gone" in printed.err  # the DATA that is not there
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_json_has_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = make_run(tmp_path / "run", taken=330), tmp_path / "page.html"
    assert run(["report", str(folder), "-o", str(page), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["report"] == str(page)
    assert result["bytes"] == page.stat().st_size
    figures = result["runs"][0]
    assert (figures["step"], figures["steps"], figures["finished"]) == (330, 400, False)
    assert (figures["skipped_steps"], figures["resumed_after"]) == (1, [299])
    assert figures["best_step"] == 320
    assert figures["mfu"] == 0.7
    assert figures["bits_per_byte"] > 1


def test_a_trained_run_has_a_whole_report(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(data, tmp_path / "run", small_recipe())
    assert run(["report", str(tmp_path / "run"), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["runs"][0]
    assert figures["missing"] == []
    assert [name for name, value in figures.items() if value is None] == ["cuda_peak_memory_mb"]
    assert figures["finished"]


def test_several_runs_need_a_name_for_their_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(make_run(tmp_path / name)) for name in ("first", "second")]
    assert run(["report", *folders]) == 2
    assert "-o FILE.html" in capsys.readouterr().err
    assert run(["report", *folders, "-o", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").is_file()


def test_a_folder_that_is_no_run_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(tmp_path)]) == 2
    assert "is no training run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium to look at pages with (Debian's package chromium)")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a whole run, of one that just began, and of two runs with long names."""
    folder = tmp_path_factory.mktemp("pages")
    whole = make_run(folder / "whole")
    begun = make_run(folder / "begun", taken=1)
    other = make_run(folder / ("a-name-without-a-place-to-break-" * 6), 900)
    pages = {}
    for name, runs in (("whole", [whole]), ("begun", [begun]), ("several", [whole, other])):
        pages[name] = folder / f"{name}.html"
        assert run(["report", *map(str, runs), "-o", str(pages[name])]) == 0
    return pages


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 900)])
@pytest.mark.parametrize("name", ["whole", "begun", "several"])
def test_a_page_fits_the_screen_and_complains_of_nothing(
    browser: Any, page_of: dict[str, Path], name: str, width: int, height: int, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.goto(page_of[name].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert complaints == []
    assert "training report" in page.title()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Nothing sticks out of the screen, also not where it would be cut off.
    assert page.evaluate(_OUTSIDE) == []
    charts = page.locator("figure")
    assert charts.count() == 7
    columns = {round(charts.nth(number).bounding_box()["x"]) for number in range(7)}
    assert len(columns) == (1 if width < 600 else 2)
    for number in range(charts.count()):
        if name == "begun" and number == 1:  # no validation yet
            continue
        box = charts.nth(number).locator("svg").bounding_box()
        assert box["width"] > 200
        assert box["height"] > 150
        assert charts.nth(number).locator("path[d*=L], path.dot").count() > 0
    assert page.evaluate(_FAINT_LETTERS) == []
    context.close()


_OUTSIDE = """
() => [...document.querySelectorAll('body *')].filter(one => {
  const box = one.getBoundingClientRect();
  return box.width && !one.closest('svg') && (box.left < -1 || box.right > innerWidth + 1);
}).map(one => one.outerHTML.slice(0, 80))
"""

# Letters whose contrast with what is behind them is below 4.5 (WCAG 2.1, 1.4.3).
_FAINT_LETTERS = """
() => {
  const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const behind = one => {
    for (; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const one of document.querySelectorAll('body *')) {
    if (one.closest('svg') || ![...one.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
      continue;
    const a = light(numbers(getComputedStyle(one).color)), b = light(behind(one));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push([contrast, one.outerHTML.slice(0, 80)]);
  }
  return faint;
}
"""
