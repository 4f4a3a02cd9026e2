"""`vsemb demo`: the page in a browser, requests that it refuses, and errors of the command."""

from __future__ import annotations

import base64
import io
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
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from tests.browser import SCHEMES, axe_violations, emulate, headless_chromium
from vsemb.cli.__main__ import main

# A proxy of the machine must not stand between a test and its own address.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_LOADED = "return [...document.querySelectorAll(arguments[0])].filter(i => i.naturalWidth > 0).length"
_HOSTS = "return performance.getEntriesByType('resource').map(entry => entry.name)"


@pytest.fixture
def run(tiny_pixel_run, tmp_path):
    return str(shutil.copytree(tiny_pixel_run.path, tmp_path / "run"))


@contextmanager
def serving(run, scenes, folder, *options):
    """The address, process, temporary folder and errors of a `vsemb demo`, of a dataset or what the options say."""
    pytest.importorskip("gradio")
    temporary = folder / "temporary"
    temporary.mkdir()
    searched = ["--data", str(scenes.path)] if scenes is not None else []
    command = [sys.executable, "-m", "vsemb.cli", "demo", run, *searched, "--port", "0", *options]
    errors = (folder / "errors").open("w+")
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        # `nohup` starts tests with SIGHUP ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
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


def asking(address, **headers):
    """A function that calls a button of the page, by its name and inputs, as the page does."""

    def opened(path, body=None):
        sent = {**headers, "Content-Type": "application/json"}
        return _DIRECT.open(urllib.request.Request(address + path, body, sent), timeout=60)

    with opened("config") as answer:
        config = json.load(answer)
    names = {part["id"]: part["props"].get("elem_id") for part in config["components"]}
    functions = {names.get(t[0]): each["id"] for each in config["dependencies"] for t in each["targets"]}

    def asked(name, *data):
        request = {"data": data, "fn_index": functions[name], "session_hash": "session"}
        opened("gradio_api/queue/join", json.dumps(request).encode()).close()
        with opened("gradio_api/queue/data?session_hash=session") as events:
            messages = [json.loads(line[5:]) for line in events if line.startswith(b"data:")]
        return next(m["output"]["data"][0] for m in messages if m["msg"] == "process_completed")

    return asked


@pytest.fixture(scope="module")
def served(tiny_pixel_run, scenes, tmp_path_factory):
    """As `serving`, for all tests here; the last one ends it."""
    folder = tmp_path_factory.mktemp("served")
    run = shutil.copytree(tiny_pixel_run.path, folder / "run")
    with serving(str(run), scenes, folder) as server:
        yield server


@pytest.mark.slow
def test_a_phone_in_the_dark_and_a_screen_reader_can_use_it(served, tmp_path):
    address, *_ = served
    with headless_chromium(tmp_path / "profile") as browser:
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(browser, 60, poll_frequency=0.05)

        def found(selector):
            return browser.find_elements(By.CSS_SELECTOR, selector)

        def check():
            assert axe_violations(browser) == []
            width = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
            assert width[0] <= width[1]

        def asked(text):
            box = wait.until(lambda _: found("#sentence textarea"))[0]
            box.clear()
            box.send_keys(text + Keys.ENTER)

        def contrast(selector):
            """Returns the contrast of border and background (WCAG 2.1, 1.4.11), which axe does not check."""
            element = browser.find_element(By.CSS_SELECTOR, selector)
            styles = map(element.value_of_css_property, ("border-top-color", "background-color"))
            colours = [map(int, re.findall(r"\d+", style)[:3]) for style in styles]
            linear = [[((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour] for colour in colours]
            low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05 for r, g, b in linear)
            return high / low

        for width, scheme in zip((1280, 360), SCHEMES, strict=True):
            emulate(browser, width, scheme)
            browser.get(address)
            wait.until(lambda _: found("#sentence textarea"))
            assert contrast("#sentence textarea") >= 3
            # All tabs are there, none in a menu.
            wait.until(lambda _: len(found("button[role=tab]")) == 4)
            # What is asked for comes late enough to be seen coming.
            browser.execute_cdp_cmd("Network.enable", {})
            slow = {"offline": False, "latency": 1000, "downloadThroughput": -1, "uploadThroughput": -1}
            browser.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
            asked("a red circle")
            wait.until(lambda _: found("#sentence-out > .translucent"))
            browser.execute_cdp_cmd("Network.emulateNetworkConditions", {**slow, "latency": 0})
            wait.until(lambda _: len(found("#sentence-out .vsemb-score")) == 12)
            wait.until(lambda _: not found("#sentence-out > .translucent"))
            check()

            # A key opens a picture, larger, and another closes it; the focus comes back.
            zoom = found("#sentence-out .vsemb-zoom")[3]
            small = zoom.size["width"]
            zoom.send_keys(Keys.ENTER)
            (large,) = wait.until(lambda _: found("dialog[open] img"))
            assert large.size["width"] > 1.4 * small and large.get_attribute("alt")
            check()
            browser.switch_to.active_element.send_keys(Keys.ESCAPE)
            wait.until(lambda _: not found("dialog"))
            assert browser.switch_to.active_element == zoom

            more = found("#sentence-out .vsemb-more")[3]
            key = more.get_attribute("data-key")
            more.send_keys(Keys.ENTER)
            wait.until(lambda _: len(found("#image-out img")) == 12)
            assert browser.find_element(By.CSS_SELECTOR, "[role=tab][aria-selected=true]").text == "Image"
            assert key in browser.find_element(By.ID, "image-preview").text
            keys = [button.get_attribute("data-key") for button in found("#image-out .vsemb-more")]
            assert key not in keys and len(keys) == 12
            check()

            # An error is one message, without the names of arguments.
            browser.find_element(By.CSS_SELECTOR, "[role=tab]").click()
            asked("zyzzyva")
            (alert,) = wait.until(lambda _: found("[role=alert]"))
            assert alert.text == "No word of “zyzzyva” is in the vocabulary. Try other words."
            assert not found(".toast-wrap *")
            check()


@pytest.mark.slow
def test_nothing_else_is_served(served):
    address, _, temporary, _ = served
    folder = temporary.parent

    def status(path, **headers):
        try:
            with _DIRECT.open(urllib.request.Request(address + path, headers=headers), timeout=60) as answer:
                return answer.status, answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.headers

    code, headers = status("")
    assert code == 200 and "default-src 'self'" in headers["content-security-policy"]
    secret = folder / "run" / "recipe.json"
    assert secret.exists()
    for path in (secret, folder / "errors", Path("/etc/passwd")):
        assert status(f"gradio_api/file={path}")[0] in (403, 404)
    assert status("", Host="elsewhere.example")[0] == 403
    for path in ("docs", "redoc", "openapi.json", "monitoring"):
        assert status(path)[0] in (403, 404)


@pytest.mark.slow
def test_a_request_cannot_name_a_file_or_an_address(served, tmp_path):
    """What the page itself never sends: a path that is no upload, an address, a count that is none."""
    address, _, _, errors = served
    asked = asking(address)
    picture = tmp_path / "picture.png"
    Image.new("RGB", (32, 32)).save(picture)
    meta = {"meta": {"_type": "gradio.FileData"}}
    for path in (str(picture), "/dev/zero", "/nothing.png", "http://127.0.0.1:1/picture.png"):
        for kind in ({}, meta):
            assert "an image dropped on the page" in asked("image-go", {"path": path, **kind}, None, 3)
    assert "1 to 48" in asked("sentence-go", "a red circle", None)
    errors.seek(0)
    assert "Traceback" not in errors.read()


@pytest.mark.slow
def test_the_page_answers_in_a_browser_until_a_signal(served, scenes, tmp_path):
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
        wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#sentence-out .vsemb-score"))
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


@pytest.mark.slow
def test_a_folder_without_captions_is_searched_by_keys_and_by_address(run, scenes, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    split = scenes.split("val")
    for row in range(12):
        image = Image.open(io.BytesIO(split.read_image(row))).convert("RGB")
        image.resize((800, 600)).save(photos / f"{row:02} it's <b>&.jpg")
    with serving(run, None, tmp_path, "--images", "photos") as (address, process, _, errors):
        with headless_chromium(tmp_path / "profile") as browser:
            from selenium.webdriver.common.by import By
            from selenium.webdriver.common.keys import Keys
            from selenium.webdriver.support.ui import WebDriverWait

            wait = WebDriverWait(browser, 60, poll_frequency=0.05)

            def found(selector):
                return browser.find_elements(By.CSS_SELECTOR, selector)

            def pressed(*keys):
                for key in keys:
                    browser.switch_to.active_element.send_keys(key)
                return browser.switch_to.active_element

            def loaded(name):
                wait.until(lambda _: browser.execute_script(_LOADED, f"#{name}-out img") == 12)

            browser.get(address)
            loaded("sentence")
            assert "Search 12 pictures in photos by text or picture" in browser.find_element(By.TAG_NAME, "body").text
            assert not found("#sentence-out .vsemb-score") and not found(".vsemb-examples button")
            assert axe_violations(browser) == []
            # Fitted, not cut.
            assert found("#sentence-out img")[0].value_of_css_property("object-fit") == "contain"

            pressed("/")
            wait.until(lambda _: browser.switch_to.active_element.tag_name == "textarea")
            pressed("two shapes & 50 %/", Keys.ENTER)
            wait.until(lambda _: len(found("#sentence-out .vsemb-score")) == 12)
            wait.until(lambda _: not found("#sentence-out > .translucent"))
            shared = browser.current_url
            assert shared == address + "?q=two+shapes+%26+50+%25%2F"
            zooms = found("#sentence-out .vsemb-zoom")
            columns = len({zoom.location["x"] for zoom in zooms})
            assert pressed(Keys.ARROW_DOWN) == zooms[0]
            assert pressed(Keys.ARROW_RIGHT, Keys.ARROW_DOWN) == zooms[1 + columns]
            assert pressed(Keys.ARROW_LEFT, Keys.ARROW_UP) == zooms[0]
            pressed(Keys.ENTER)
            (large,) = wait.until(lambda _: found("dialog[open] img"))
            wait.until(lambda _: large.get_property("naturalWidth") == 800)
            assert axe_violations(browser) == []
            # The next one, and back to it.
            pressed(Keys.ARROW_RIGHT)
            wait.until(lambda _: len(found("dialog[open]")) == 1)
            pressed(Keys.ESCAPE)
            wait.until(lambda _: not found("dialog"))
            assert browser.switch_to.active_element == zooms[1]
            keys = [each.text for each in found("#sentence-out .vsemb-key")]

            # Sent to somebody else.
            browser.get(shared)
            wait.until(lambda _: len(found("#sentence-out .vsemb-score")) == 12)
            loaded("sentence")
            assert [each.text for each in found("#sentence-out .vsemb-key")] == keys
            assert found("#sentence textarea")[0].get_property("value") == "two shapes & 50 %/"

            # A picture of the folder, and a dropped one, which is found at its place.
            found("#sentence-out .vsemb-more")[0].send_keys(Keys.ENTER)
            wait.until(lambda _: len(found("#image-out .vsemb-score")) == 11)
            assert keys[0] in browser.find_element(By.ID, "image-preview").text and browser.current_url == address
            found("#image-file input[type=file]")[0].send_keys(str(photos / "07 it's <b>&.jpg"))
            wait.until(lambda _: len(found("#image-out .vsemb-score")) == 12)
            assert "07 it's <b>&.jpg" in found("#image-out .vsemb-key")[0].text
            assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        errors.seek(0)
        assert "Traceback" not in errors.read()


@pytest.mark.slow
def test_behind_a_token_until_another_signal(run, scenes, tmp_path):
    token = "0123456789abcdef0123456789abcdef"
    (tmp_path / "token").write_text(f"{token}\n")
    with serving(run, scenes, tmp_path, "--token-file", str(tmp_path / "token")) as (address, process, temporary, _):

        def basic(password):
            return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()

        for path in ("", "config", "gradio_api/queue/data?session_hash=session", "gradio_api/upload"):
            for headers in ({}, {"Authorization": basic("fedcba9876543210")}, {"Authorization": f"Bearer {token}0"}):
                with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                    _DIRECT.open(urllib.request.Request(address + path, headers=headers), timeout=60)
                assert refused.value.headers["WWW-Authenticate"].startswith("Basic realm=")
        for sent in (basic(token), f"Bearer {token}"):
            assert asking(address, Authorization=sent)("sentence-go", "a red circle", 3).count("<img") == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert not list(temporary.glob("vsemb-demo-*"))


@pytest.mark.slow
def test_a_closed_terminal_and_pages_of_others(run, scenes, tmp_path):
    with serving(run, scenes, tmp_path) as (address, process, temporary, _):
        upload = {"Content-Type": "multipart/form-data; boundary=x"}
        part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n0123456789\r\n--x--\r\n'
        for headers, status in (({"Origin": "https://example.org"}, 403), ({"Host": "rebound.example.org"}, 403)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                _DIRECT.open(urllib.request.Request(address + "gradio_api/upload", part, upload | headers), timeout=60)
            assert refused.value.code == status
        with _DIRECT.open(urllib.request.Request(address + "gradio_api/upload", part, upload), timeout=60) as answer:
            assert answer.status == 200
        assert [path for path in temporary.rglob("*.png") if path.is_file()]
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 130
        assert not list(temporary.glob("vsemb-demo-*"))


def test_a_port_in_use_is_one_line(run, scenes, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["demo", run, "--data", str(scenes.path), "--port", port]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"got {port}." in said and "`port`; 0 takes any free port" in said
    assert main(["demo", run, "--data", str(scenes.path), "--port", "65536"]) == 1
    assert "0 to 65535" in capsys.readouterr().err


def test_without_gradio_the_extra_is_named(run, scenes, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["demo", run, "--data", str(scenes.path), "--port", "0"]) == 1
    assert "vsemb[demo]" in capsys.readouterr().err
    assert not (Path(run) / "index").exists()
