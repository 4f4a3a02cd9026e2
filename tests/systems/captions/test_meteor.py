"""METEOR's Java program: its scores where it is there, and programs that fail, hang or talk nonsense."""

from __future__ import annotations

import shutil
import sys
import time

import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.systems.captions import meteor

pytest.importorskip("pycocoevalcap", reason="the extra `captions` is not installed")


@pytest.mark.slow
def test_scores_are_those_of_the_coco_evaluation() -> None:
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    from pycocoevalcap.meteor.meteor import Meteor

    candidates = ["a dog runs on the grass", "two cats sleep", "", "a dog ||| a cat", "the hund läuft"]
    references = [
        ["a dog running across grass", "the dog"],
        ["cats sleeping"],
        ["a man"],
        ["a dog"],
        ["a dog"],
    ]
    corpus, each = meteor.meteor_of_tokens(candidates, references)
    keys = range(len(candidates))
    scorer = Meteor()
    expected = scorer.compute_score(dict(zip(keys, references, strict=True)), {row: [candidates[row]] for row in keys})
    scorer.meteor_p.stdout.close()
    scorer.meteor_p.stderr.close()
    assert corpus == expected[0] and each.tolist() == expected[1]
    assert 0 < corpus < 1 and (each > 0).tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]  # The last shares no word.


def answering(monkeypatch, program: str) -> None:
    """Puts a Python program in the place of the Java one."""
    monkeypatch.setattr(meteor, "_command", lambda: [sys.executable, "-c", program])


def test_reads_one_answer_a_line(monkeypatch) -> None:
    program = """
import sys
for line in sys.stdin:
    first, *rest = line.rstrip("\\n").split(" ||| ")
    if first == "SCORE":
        print(len(rest), flush=True)
    else:
        print(*[float(part) / 10 for part in rest], 0.5, sep="\\n", flush=True)
"""
    answering(monkeypatch, program)
    corpus, each = meteor.meteor_of_tokens(["a |||\nb", "", "c"], [["d", "e ||| f"], ["g"], ["h", "i", ""]])
    assert corpus == 0.5
    np.testing.assert_allclose(each, [0.3, 0.2, 0.4])


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "ended early"),
        ("input(); print(1)", "ended early"),
        ("import sys\nfor line in sys.stdin: print('Error: what', flush=True)", "no numbers"),
        ("import sys, time\nsys.stdin.readline(); time.sleep(600)", "no answer for 0.5 seconds"),
    ],
    ids=["ends", "ends later", "nonsense", "hangs"],
)
def test_what_goes_wrong_is_one_line_and_in_time(monkeypatch, program, said) -> None:
    answering(monkeypatch, program)
    if "sleep" in program or "nonsense" in said:
        monkeypatch.setattr(meteor, "_PATIENCE", 0.5)
    if "numbers" in said:
        # The nonsense answers every line once; EVAL wants one more answer than there are captions.
        program = program.replace("print('Error: what'", "print('Error: what\\nError: what'")
        answering(monkeypatch, program)
    started = time.monotonic()
    with pytest.raises(DataError) as raised:
        meteor.meteor_of_tokens(["a", "b"], [["c"], ["d"]])
    assert said in str(raised.value) and "\n" not in str(raised.value)
    assert time.monotonic() - started < 60


def test_no_java_and_no_jar_are_told(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(meteor.shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="`java`"):
        meteor.meteor_of_tokens(["a"], [["a"]])
    monkeypatch.setattr(meteor.shutil, "which", lambda name: str(tmp_path / "java"))
    with pytest.raises(DataError, match="Java"):
        meteor.meteor_of_tokens(["a"], [["a"]])
    monkeypatch.setattr(meteor, "_METEOR", "none.jar")
    with pytest.raises(DataError, match=r"none\.jar"):
        meteor.meteor_of_tokens(["a"], [["a"]])
