"""`vsemb serve`: what it prints, how it ends, and how it fails."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.asking import ask
from tests.serving.conftest import publish_plus
from vsemb.cli.__main__ import main


@pytest.fixture(scope="module")
def plus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_plus(tmp_path_factory.mktemp("models") / "plus", 100).parent


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_prints_a_line_that_works(plus: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "vsemb.cli", "serve", str(plus), "--port", "0", "--rest-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().rstrip() for _ in range(5)]
            assert lines[3] == ""
            assert lines[0].startswith("gRPC  127.0.0.1:")
            assert lines[1].startswith("REST  http://127.0.0.1:")
            assert lines[2] == "model plus, version 1"
            curl, _, body, url = shlex.split(lines[4])
            assert curl == "curl"
            port, path = int(url.split(":")[2].split("/")[0]), url[url.index("/v1") :]
            assert ask(port, "POST", path, body) == (200, {"predictions": [101.0]})
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "stopping\n")
    assert "Traceback" not in err


def failure(capsys, *arguments: str) -> str:
    assert main(["serve", "--port", "0", "--rest-port", "0", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("vsemb serve:")
    return line


def test_failures_are_one_line(plus: Path, tmp_path: Path, capsys) -> None:
    assert "No model directory at" in failure(capsys, str(tmp_path / "none"))
    assert "must hold a version" in failure(capsys, str(tmp_path))
    assert "is a single version. Pass the model's directory" in failure(capsys, str(plus / "1"))
    assert "`directory` must be" in failure(capsys)
    assert "`model` must be" in failure(capsys, str(plus), "--model", f"plus={plus}")
    assert "`concurrency`" in failure(capsys, str(plus), "--concurrency", "0")
    assert "`versions`" in failure(capsys, str(plus), "--versions", "latest", "1")
    assert "no token is set" in failure(capsys, str(plus), "--host", "0.0.0.0")
    assert "Cannot read the token" in failure(capsys, str(plus), "--token-file", str(tmp_path / "none"))
    (tmp_path / "bad" / "1").mkdir(parents=True)
    assert "Cannot load" in failure(capsys, str(tmp_path / "bad"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"Cannot listen on 127.0.0.1:{port}" in failure(capsys, str(plus), "--rest-port", port)


@pytest.mark.parametrize(
    "arguments", [["--max-body", "much"], ["--label", "a=b"], ["--model", "a"], ["--versions", "new"]]
)
def test_wrong_usage(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "x", *arguments])
    assert caught.value.code == 2


def test_help_needs_no_tensorflow() -> None:
    code = (
        "import sys; from vsemb.cli.__main__ import command_parser; "
        "command_parser('serve').format_help(); assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
