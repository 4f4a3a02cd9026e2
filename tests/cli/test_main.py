"""What the command line offers, and what it does with a signal."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
import tensorflow as tf

from vsemb import registry
from vsemb.cli.__main__ import command_parser, commands, main
from vsemb.recipes import describe


def test_a_terminated_command_leaves_nothing_behind(tmp_path, monkeypatch):
    def run():
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            Path(folder, "half").write_text("half a file")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)  # The signal ends it.

    monkeypatch.setattr(describe, "explain", run)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main(["recipes"])
    assert ended.value.code == 143
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) == before


def test_annotate_is_offered_if_a_system_brings_annotations(monkeypatch):
    assert "annotate" in commands()
    monkeypatch.setattr(registry, "kinds", lambda family: [])
    assert "annotate" not in commands() and {"analyze", "evaluate"} <= set(commands())


def test_without_a_command_all_are_listed(capsys):
    assert main([]) == 2
    assert "  prepare  " in capsys.readouterr().err


def test_a_text_may_follow_options(capsys):
    parse = command_parser("search").parse_args_anywhere
    assert parse(["runs/a", "a dog", "-k", "3"]).text == parse(["runs/a", "-k", "3", "a dog"]).text == "a dog"
    assert "text" not in parse(["runs/a"])
    with pytest.raises(SystemExit):
        parse(["runs/a", "a", "dog"])
    assert "unrecognized arguments: dog" in capsys.readouterr().err


def test_options_are_not_abbreviated(capsys):
    with pytest.raises(SystemExit):
        command_parser("search").parse_args_anywhere(["runs/a", "a dog", "--k", "3"])
    assert "unrecognized arguments: --k" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "package"), [("tensorflow", "tensorflow"), ("tensorflow_text.tools", "tensorflow-text")]
)
def test_a_missing_backend_is_named_in_one_line(monkeypatch, capsys, module: str, package: str) -> None:
    def run() -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(describe, "explain", run)
    assert main(["recipes"]) == 1
    said = capsys.readouterr().err
    assert f"run `pip install {package}`" in said and "--backend jax" in said and "Traceback" not in said


def test_only_training_runs_on_other_backends(monkeypatch, capsys) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert main(["recipes"]) == 0 and os.environ["KERAS_BACKEND"] == "tensorflow"
    # Keras cannot change its backend in this process.
    assert main(["train", "vsepp", "--backend", "jax", "--data", "d", "--out", "o"]) == 1
    assert "`backend` must be tensorflow, which Keras uses in this process" in capsys.readouterr().err


def test_a_path_that_is_not_utf_8_is_named_in_one_line(monkeypatch, capsys) -> None:
    name = os.fsdecode(b"caf\xe9")

    def run() -> None:
        name.encode()  # As TensorFlow does with its paths.

    monkeypatch.setattr(describe, "explain", run)
    assert main(["recipes"]) == 1
    said = capsys.readouterr().err
    assert ascii(name) in said and said.count("\n") == 1


@pytest.mark.parametrize("message", ["", "no file \x1b[2J\n\t [[{{node x}}]]"])
def test_an_error_of_tensorflow_is_one_escaped_line(monkeypatch, capsys, message: str) -> None:
    def run() -> None:
        raise tf.errors.NotFoundError(None, None, message)

    monkeypatch.setattr(describe, "explain", run)
    assert main(["recipes"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "\x1b" not in said and "node" not in said
