"""A headless Chromium for tests of pages, and axe-core for their accessibility; tests are skipped without them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Chromium would otherwise look for its maker's hosts at every start; a test needs none.
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
)

#: Values of `prefers-color-scheme`.
SCHEMES = ("light", "dark")
_AXE = """
const done = arguments[arguments.length - 1];
axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(result => done(result.violations.flatMap(
  violation => violation.nodes.map(node => `${violation.id}: ${node.target} ${node.failureSummary}`))));
"""

#: Three dimensions, drawn by the processor.
WEBGL = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")


def _program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        # A machine that must have it says so, and then its absence is a failure.
        if os.environ.get("VSEMB_NEEDS_CHROMIUM"):
            pytest.fail(f"none of {', '.join(names)} is installed, and VSEMB_NEEDS_CHROMIUM is set")
        pytest.skip(f"none of {', '.join(names)} is installed")
    return found


@contextmanager
def headless_chromium(profile: Path, *flags: str) -> Iterator[Any]:
    """Yields a `selenium` WebDriver of a headless Chromium that keeps its profile in an empty folder.

    Args:
        profile: the folder.
        *flags: more of Chromium's flags, such as those of `WEBGL`.
    """
    chromium, driver = _program("chromium", "chromium-browser"), _program("chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        browser.set_page_load_timeout(60)
        yield browser
    finally:
        browser.quit()


def emulate(browser: Any, width: int, scheme: str) -> None:
    """Sets the width of the window in CSS pixels, that of a phone below 600, and the preferred colour scheme."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def axe_violations(browser: Any) -> list[str]:
    """Returns what axe-core finds in the open page against WCAG 2.1 A and AA; skips the test without axe-core."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe-playwright-python is not installed, which brings axe-core (extra dev)")
    # The package's file alone, since its functions are for another driver.
    browser.execute_script(Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script(_AXE)
    # Results that fade in have too little contrast for a moment; a violation that stays is returned.
    for _ in range(20):
        if not found:
            break
        time.sleep(0.5)
        found = browser.execute_async_script(_AXE)
    return found
