"""Versions: numbered, whole or absent, never changed."""

from __future__ import annotations

import os
import signal

import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.exporting.versions import existing_versions, publishing


def publish(base, version=None):
    with publishing(base, version) as publication:
        (publication.temporary / "saved_model.pb").write_text("model")
    return publication.path


def test_versions_count_up_from_one_past_what_is_no_version(tmp_path):
    base = tmp_path / "models" / "dogs"
    assert existing_versions(base) == []
    assert publish(base) == base / "1"
    (base / "notes").mkdir()
    (base / ".9").mkdir()
    assert publish(base) == base / "2"
    assert publish(base, 10) == base / "10"
    assert publish(base) == base / "11"  # 11, not 3: the highest counts, as a number
    assert existing_versions(base) == [1, 2, 10, 11]
    assert [path.name for path in base.parent.iterdir()] == ["dogs"]


def test_nothing_is_seen_before_the_end(tmp_path):
    base = tmp_path / "dogs"
    publish(base)
    with publishing(base) as publication:
        # Beside the model's directory and not in it, under no number.
        assert publication.temporary.parent == tmp_path and not publication.temporary.name.isdigit()
        assert [path.name for path in base.iterdir()] == ["1"]


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), publishing(tmp_path / "dogs") as publication:
        (publication.temporary / "half").write_text("a model")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_version(tmp_path):
    base = tmp_path / "models" / "dogs"
    # Killed when all files are written, at the latest moment before publication. TensorFlow has not started here.
    if (child := os.fork()) == 0:
        with publishing(base) as publication:
            (publication.temporary / "saved_model.pb").write_text("model")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not base.exists()
    left = [path.name for path in base.parent.iterdir()]
    assert len(left) == 1 and left[0].startswith(".dogs.")
    assert publish(base) == base / "1"


def test_a_version_that_exists_is_not_changed(tmp_path):
    path = publish(tmp_path / "dogs", 3)
    (path / "saved_model.pb").write_text("old")
    with pytest.raises(DataError, match="versions are immutable"):
        publish(tmp_path / "dogs", 3)
    assert (path / "saved_model.pb").read_text() == "old"


def test_two_exports_at_once_get_two_versions(tmp_path):
    base = tmp_path / "dogs"
    with publishing(base) as first:
        (first.temporary / "a").write_text("first")
        with publishing(base) as second:
            (second.temporary / "a").write_text("second")
    assert (first.path, second.path) == (base / "2", base / "1")
    with pytest.raises(DataError, match="Cannot write"), publishing(base, 5) as late:
        (late.temporary / "a").write_text("late")
        (base / "5").mkdir()
        (base / "5" / "a").write_text("early")
    assert (base / "5" / "a").read_text() == "early"


def test_bad_places_and_numbers(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="got a file"):
        publish(tmp_path / "file")
    with pytest.raises(DataError, match="Cannot write"):
        publish(tmp_path / "file" / "model")
    with raises_argument("out"):
        publish(tmp_path / "dogs" / "1")
    with raises_argument("out"):
        publish(tmp_path / "contracts")
    for version in (0, -1, True, 2**63):
        with raises_argument("version"):
            publish(tmp_path / "dogs", version)


def test_integers_that_a_server_cannot_read_are_no_versions(tmp_path):
    base = tmp_path / "dogs"
    (base / "99999999999999999999").mkdir(parents=True)
    assert publish(base) == base / "1"
    last = publish(base, 2**63 - 1)
    with raises_argument("version"):
        publish(base)
    assert existing_versions(base) == [1, int(last.name)]


def test_links_are_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "dogs").symlink_to(tmp_path / "disk")
    assert publish(tmp_path / "dogs") == tmp_path / "disk" / "1"


def test_the_number_is_told_before_it_is_seen(tmp_path):
    base, told = tmp_path / "dogs", []
    with publishing(base) as publication:

        def numbered(number):
            told.append(number)
            (publication.temporary / "number").write_text(str(number))
            if number == 1:  # Another export takes it at this very moment.
                (base / "1").mkdir()
                (base / "1" / "other").touch()

        publication.numbered = numbered
    assert told == [1, 2] and publication.path == base / "2"
    assert (base / "2" / "number").read_text() == "2" and (base / "1" / "other").exists()
