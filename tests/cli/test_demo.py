"""`vsemb demo`: the page as a reader meets it, in a browser, and what the command refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from PIL import Image

from tests.browser import headless_chromium
from vsemb.cli.__main__ import main

# A proxy of the machine must not stand between a test and its own address.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_LOADED = "return [...document.querySelectorAll(arguments[0])].filter(i => i.naturalWidth > 0).length"
_HOSTS = "return performance.getEntriesByType('resource').map(entry => entry.name)"


@pytest.fixture
def run(tiny_pixel_run, tmp_path):
    return str(shutil.copytree(tiny_pixel_run.path, tmp_path / "run"))


@pytest.fixture
def served(run, scenes, tmp_path):
    """The address, process and temporary folder of a running `vsemb demo`."""
    pytest.importorskip("gradio")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "vsemb.cli", "demo", run, "--data", str(scenes.path), "--port", "0"]
    errors = (tmp_path / "errors").open("w+")
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    try:
        assert process.stdout is not None
        # Ends with the process, so it cannot wait for ever for one that failed.
        address = next((m[0] for line in process.stdout if (m := re.search(r"http://\S+", line))), None)
        errors.seek(0)
        assert address is not None, errors.read()
        yield address, process, temporary, errors
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        errors.close()


def test_the_page_answers_in_a_browser(served, scenes, tmp_path):
    address, process, temporary, errors = served
    with headless_chromium(tmp_path / "profile") as browser:
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(browser, 60, poll_frequency=0.1)

        def element(selector):
            return wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, selector))[0]

        def typed(selector, text):
            box = wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, selector))[0]
            wait.until(lambda _: box.is_displayed())
            box.send_keys(text)

        def pictures(name, count):
            wait.until(lambda _: browser.execute_script(_LOADED, f"#{name}-out img") == count)

        def tab(name):
            tabs = browser.find_elements(By.CSS_SELECTOR, "button[role=tab]")
            next(each for each in tabs if each.text == name).click()

        browser.get(address)
        typed("#sentence textarea", "a red zyzzyva circle" + Keys.ENTER)
        pictures("sentence", 12)
        assert "Not known to the run: zyzzyva." in element("#sentence-out").text

        tab("Image")
        split = scenes.split("test")
        dropped = tmp_path / "dropped.png"
        dropped.write_bytes(split.read_image(0))
        element("#image-file input[type=file]").send_keys(str(dropped))
        pictures("image", 12)
        assert "Nearest captions" in element("#image-out").text
        assert split.keys[0] not in element("#image-out").text

        tab("Arithmetic")
        typed("#arithmetic-minus textarea, #arithmetic-minus input", "red")
        typed("#arithmetic-plus textarea, #arithmetic-plus input", "blue, square" + Keys.ENTER)
        pictures("arithmetic", 12)

        tab("Compare")
        broken = tmp_path / "broken.png"
        broken.write_bytes(dropped.read_bytes()[:60])
        element("#compare-file input[type=file]").send_keys(str(broken))
        element("#compare-file img")
        typed("#compare-texts textarea", "a red circle")
        element("#compare-go").click()
        wait.until(lambda _: "The image is unreadable" in element("#compare-out").text)

        names = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "button[role=tab]")]
        assert names == ["Sentence", "Image", "Arithmetic", "Compare"]  # An order alone has "Compose".
        asked = browser.execute_script(_HOSTS)
        assert asked and all(name.startswith((address, "data:", "blob:")) for name in asked)
        # A resource that the policy stops is such a message too.
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

        # With the page still open, whose connection must not hold the end up.
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    errors.seek(0)
    assert "Traceback" not in errors.read()
    assert not list(temporary.glob("vsemb-demo-*"))


def test_nothing_else_is_served(served, tmp_path):
    address, process, temporary, _ = served

    def status(path, **headers):
        try:
            with _DIRECT.open(urllib.request.Request(address + path, headers=headers), timeout=60) as answer:
                return answer.status, answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.headers

    code, headers = status("")
    assert code == 200 and "default-src 'self'" in headers["content-security-policy"]
    secret = tmp_path / "run" / "recipe.json"
    assert secret.exists()
    for path in (secret, tmp_path / "errors", Path("/etc/passwd")):
        assert status(f"gradio_api/file={path}")[0] in (403, 404)
    assert status("", Host="elsewhere.example")[0] == 400
    for path in ("docs", "redoc", "openapi.json", "monitoring"):
        assert status(path)[0] in (403, 404)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert not list(temporary.glob("vsemb-demo-*"))


def test_a_request_cannot_name_a_file_or_an_address(served, tmp_path):
    """What the page itself never sends: a path that is no upload, an address, a count that is none."""
    address, _, _, errors = served
    with _DIRECT.open(address + "config", timeout=60) as answer:
        config = json.load(answer)
    names = {part["id"]: part["props"].get("elem_id") for part in config["components"]}
    functions = {names.get(t[0]): each["id"] for each in config["dependencies"] for t in each["targets"]}
    headers = {"Content-Type": "application/json"}

    def asked(name, *data):
        request = {"data": data, "fn_index": functions[name], "session_hash": "session"}
        body = json.dumps(request).encode()
        join = urllib.request.Request(address + "gradio_api/queue/join", body, headers)
        _DIRECT.open(join, timeout=60).close()
        with _DIRECT.open(address + "gradio_api/queue/data?session_hash=session", timeout=60) as events:
            messages = [json.loads(line[5:]) for line in events if line.startswith(b"data:")]
        return next(m["output"]["data"][0] for m in messages if m["msg"] == "process_completed")

    picture = tmp_path / "picture.png"
    Image.new("RGB", (32, 32)).save(picture)
    meta = {"meta": {"_type": "gradio.FileData"}}
    for path in (str(picture), "/dev/zero", "/nothing.png", "http://127.0.0.1:1/picture.png"):
        for kind in ({}, meta):
            assert "an image dropped on the page" in asked("image-go", {"path": path, **kind}, None, 3)
    assert "1 to 48" in asked("sentence-go", "a red circle", None)
    errors.seek(0)
    assert "Traceback" not in errors.read()


def test_a_port_in_use_is_one_line(run, scenes, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["demo", run, "--data", str(scenes.path), "--port", port]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"port={port}" in said and "--port; 0 takes any" in said
    assert main(["demo", run, "--data", str(scenes.path), "--port", "65536"]) == 1
    assert "0 to 65535" in capsys.readouterr().err


def test_without_gradio_the_extra_is_named(run, scenes, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["demo", run, "--data", str(scenes.path), "--port", "0"]) == 1
    assert "vsemb[demo]" in capsys.readouterr().err
    assert not (Path(run) / "index").exists()
