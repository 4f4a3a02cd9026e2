"""The plugin that runs each test file in a process of its own, tried on small files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FILES = {
    "test_fine.py": "def test_one(): pass\ndef test_two(): pass\n",
    "test_late.py": "def test_late(): pass\n",
    "test_wrong.py": "def test_wrong(): assert 1 == 2\n",
    "test_dies.py": "import os\ndef test_before(): pass\ndef test_dies(): os._exit(7)\ndef test_after(): pass\n",
    "test_broken.py": "import nowhere_to_be_found\n",
    "test_skipped.py": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """`said(*arguments)` is pytest's exit status and its last lines, for files that import no TensorFlow."""
    folder = tmp_path_factory.mktemp("suite")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "tensorflow.py").touch()
    (folder / "keras.py").touch()

    def run(*arguments: str) -> tuple[int, str]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.processes",
            "-p",
            "no:cacheprovider",
            "--processes=2",
            "-q",
        ]
        environment = os.environ | {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        }
        ended = subprocess.run([*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        return ended.returncode, ended.stdout + ended.stderr

    return run


def test_what_every_file_did_is_counted(said) -> None:
    status, text = said()
    assert status == 1
    # test_dies and test_after did not end.
    assert re.search(r"3 failed, 4 passed, 1 skipped, .*1 error in", text)
    assert "assert 1 == 2" in text and "nowhere_to_be_found" in text
    assert "the process ended with 7 before this test did" in text


def test_tests_are_chosen_as_without_processes(said) -> None:
    status, text = said("test_fine.py", "test_dies.py::test_before", "-k", "not two")
    assert status == 0 and "2 passed, 1 deselected" in text


def test_files_run_once_in_the_order_of_their_names(said) -> None:
    named = ("test_late.py", "test_fine.py", "test_late.py", "test_fine.py::test_one")
    status, text = said(*named, "-vv", "--processes=1")
    assert status == 0 and "3 passed" in text
    assert text.index("test_late.py::test_late") < text.index("test_fine.py::test_one")


def test_a_file_without_chosen_tests_does_not_fail_after_another_one(said) -> None:
    status, text = said("test_broken.py", "test_wrong.py", "test_fine.py", "test_late.py", "-k", "not late")
    assert status == 1 and "before this test did" not in text
    assert re.search(r"1 failed, 2 passed, 1 deselected, .*1 error in", text)


@pytest.mark.parametrize("name", ["test_fine.py::test_three", "nowhere"])
def test_an_argument_that_names_no_test(said, name) -> None:
    status, text = said(name)
    assert status == pytest.ExitCode.USAGE_ERROR and name in text


def test_what_files_share_is_found_by_another_call(said, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VSEMB_SHARED", str(tmp_path / "shared"))
    (tmp_path / "test_shared.py").write_text(
        "import os\nfrom tests.processes import SHARED\n"
        "def test_it(request):\n"
        "    print(request.config.stash[SHARED])\n"
        "    os.mkdir(request.config.stash[SHARED] / 'made')\n"
    )
    assert said(str(tmp_path / "test_shared.py"))[0] == 0
    status, text = said(str(tmp_path / "test_shared.py"))
    assert status == 1 and "FileExistsError" in text and (tmp_path / "shared" / "made").is_dir()
