"""A headless Chromium for tests of what people look at; skipped, with a reason, where there is none."""

from __future__ import annotations

import os
import shutil
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
