"""Runs, datasets and indexes that a stranger hands over: no command waits, and nothing outside is read."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.raising import raises_argument
from vsemb.cli.__main__ import main
from vsemb.data.check import check
from vsemb.data.features.store import FeatureStore
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.files import inside, require_contained, require_regular
from vsemb.image.backbones import BackboneConfig
from vsemb.runs.indexing import open_indexed
from vsemb.runs.run import Run
from vsemb.searching.storage import read_index

# A file that is opened by mistake waits for ever; a shared machine may be slow.
_SECONDS = 60


@contextmanager
def in_time() -> Iterator[None]:
    """Fail if what is done inside waits."""

    def late(*_: object) -> None:
        pytest.fail("it waits", pytrace=False)

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_OPENED: list[str] = []
_ATTEMPTS: list[str] = []
_WATCHED = [False]


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if not _WATCHED[0]:
        return
    if event == "open":
        _OPENED.append(str(arguments[0]))
    elif event in ("socket.connect", "socket.getaddrinfo"):
        _ATTEMPTS.append(f"{event} {arguments[1:]}")


@contextmanager
def watched() -> Iterator[None]:
    """Record the files and connections that are opened inside, in `_OPENED` and `_ATTEMPTS`."""
    if not _OPENED:
        sys.addaudithook(_watch)  # Hooks cannot be removed.
    _OPENED[:], _ATTEMPTS[:] = ["watched"], []
    _WATCHED[0] = True
    try:
        yield
    finally:
        _WATCHED[0] = False


def use_run(folder: Path) -> None:
    run = Run.open(folder)
    assert len(run.vocabulary)
    assert run.model is not None


def use_dataset(folder: Path) -> None:
    dataset = StoredDataset.open(folder)
    for name in dataset.splits:
        dataset.split(name).read_image(0)
    FeatureStore.find(dataset)


def use_index(folder: Path) -> None:
    read_index(folder).close()


@pytest.fixture(params=["run", "dataset", "index"])
def handed_over(request, tmp_path: Path) -> tuple[Path, Callable[[Path], None]]:
    """A copy of a folder, and what opens it."""
    names = {"run": ("tiny_run", use_run), "dataset": ("scenes", use_dataset), "index": ("pixel_index", use_index)}
    fixture, use = names[request.param]
    source = request.getfixturevalue(fixture)
    folder = shutil.copytree(getattr(source, "path", source), tmp_path / "handed-over")
    return folder, use


def test_a_pipe_a_device_and_a_link_in_place_of_each_file_is_named(handed_over, tmp_path: Path) -> None:
    folder, use = handed_over
    secret = tmp_path / "secret"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        secret.write_bytes(content)
        for make in (
            os.mkfifo,
            lambda path: path.symlink_to("/dev/zero"),
            lambda path: path.symlink_to(secret),
        ):
            path.unlink()
            make(path)
            # A pipe must not be what is read first; of the link, the content is right.
            with in_time(), pytest.raises(DataError, match=path.name):
                use(folder)
            path.unlink()
            path.write_bytes(content)
    with in_time():
        use(folder)


def test_a_link_inside_the_folder_and_a_link_to_the_folder_are_followed(handed_over, tmp_path: Path) -> None:
    folder, use = handed_over
    (tmp_path / "link").symlink_to(folder)
    path = next(path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json")
    path.rename(path.with_name("renamed"))
    path.symlink_to("renamed")
    use(tmp_path / "link")


@pytest.mark.parametrize("name", ["../secret", "/dev/zero", "backend/../../secret"])
def test_names_in_the_manifest_of_an_index_stay_inside(name: str, pixel_index: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(pixel_index, tmp_path / "index")
    (tmp_path / "secret").write_text("secret")
    (folder / "backend").mkdir(exist_ok=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with watched(), in_time(), pytest.raises(DataError, match="must lie in the folder"):
        read_index(folder)
    assert not any(opened.endswith(("secret", "zero")) for opened in _OPENED)


@pytest.mark.parametrize("name", ["../secret", "/dev/zero"])
def test_names_in_the_manifest_of_a_dataset_stay_inside(name: str, scenes_copy, tmp_path: Path) -> None:
    folder = scenes_copy.path
    (tmp_path / "secret").write_text("secret")
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    for change in ("index", "shards"):
        manifest = json.loads(path.read_text())
        split = manifest["splits"]["val"]
        split[change] = name if change == "index" else [name, *split["shards"][1:]]
        path.write_text(json.dumps(manifest))
        with watched(), in_time(), pytest.raises(DataError, match=re.escape(repr(name))):
            StoredDataset.open(folder)
        assert not any(opened.endswith(("secret", "zero")) for opened in _OPENED)
        path.write_text(json.dumps(whole))
    tokens = folder / "tokens" / "strange"
    tokens.mkdir(parents=True)
    (tokens / "manifest.json").write_text(json.dumps({"sha256": {name: "0" * 64}}))
    with watched(), in_time():
        (found,) = check(folder).damaged
    assert "content" in found and not any(opened.endswith(("secret", "zero")) for opened in _OPENED)


def test_opening_contacts_no_network(tiny_run, pixel_index: Path, tiny_pixel_run, scenes) -> None:
    with watched():
        use_run(tiny_run.path)
        use_dataset(scenes.path)
        index, _, _ = open_indexed(pixel_index, tiny_pixel_run.path, scenes.path)
        index.close()
    assert not _ATTEMPTS


@pytest.mark.parametrize(
    "where", ["hf://stranger/preset", "kaggle://stranger/clip/keras/tiny/1", "clip_vit_base_patch16"]
)
def test_a_preset_in_the_recipe_of_others_is_neither_fetched_nor_read(
    where: str, tiny_pixel_run, preset_path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_pixel_run.path, tmp_path / "run")
    recipe = json.loads((folder / "recipe.json").read_text())
    for name in (f"hub:{where}", f"hub:{preset_path('vit')}"):
        recipe["image"] |= {"backbone": name, "weights": "preset"}
        (folder / "recipe.json").write_text(json.dumps(recipe))
        with watched(), pytest.raises(DataError, match="copy of its preset"):
            Run.open(folder)
        assert not _ATTEMPTS and not any(opened.startswith(str(preset_path("vit"))) for opened in _OPENED)
    # A copy in a format that keras-hub would convert is not one that vsemb wrote.
    copy = folder / "presets" / "image"
    copy.mkdir(parents=True)
    (copy / "config.json").write_text('{"class_name": "", "config": {}, "model_type": "vit"}')
    with watched(), pytest.raises(DataError, match="copy of its preset"):
        Run.open(folder)
    assert not _ATTEMPTS


def test_a_stored_backbone_without_its_description_is_not_fetched() -> None:
    with watched(), raises_argument("backbone"):
        BackboneConfig.from_json({"name": "hub:hf://stranger/preset"})
    assert not _ATTEMPTS


@pytest.mark.parametrize(
    "command",
    [
        ["embed", "RUN", "--texts", "PIPE", "--out", "OUT.npy"],
        ["embed", "RUN", "--images", "PIPE.txt", "--out", "OUT.npy"],
        ["search", "RUN", "--image", "PIPE"],
        ["prepare", "PIPE.csv", "--out", "OUT"],
        ["prepare", "PIPE.json", "--out", "OUT"],
        ["prepare", "PIPE.parquet", "--out", "OUT"],
        ["prepare", "PIPE.tar", "--out", "OUT"],
    ],
    ids=lambda command: " ".join(command),
)
def test_a_pipe_named_on_the_command_line_is_refused(command: list[str], tiny_run, tmp_path: Path, capsys) -> None:
    arguments = []
    for word in command:
        if word.startswith("PIPE"):
            word = str(tmp_path / word)
            os.mkfifo(word)
        arguments.append(word.replace("RUN", str(tiny_run.path)).replace("OUT", str(tmp_path / "out")))
    with in_time():
        assert main(arguments) in (1, 2)
    assert "PIPE" in capsys.readouterr().err


def test_what_a_regular_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    (tmp_path / "link").symlink_to("file")
    assert require_regular(tmp_path / "link") == tmp_path / "link"
    assert inside(tmp_path, "link") == tmp_path / "link"
    for wrong in ("/dev/null", tmp_path, tmp_path / "none", tmp_path / "a\0b"):
        with pytest.raises(OSError, match="device|directory|No such file|null"):
            require_regular(wrong)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "out").symlink_to(tmp_path / "file")
    with pytest.raises(PermissionError):
        inside(tmp_path / "folder", "out")
    with pytest.raises(DataError, match="out is a link"):
        require_contained(tmp_path / "folder", "run")
    require_contained(tmp_path / "folder", "model", links=True)
    require_contained(tmp_path, "run")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the permissions --x hides links, which can be opened by their names."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    scandir = os.scandir

    def refused(path: str):
        if path.endswith("checkpoints"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)  # A test may run as root, who can list it.
    with pytest.raises(DataError, match="checkpoints"):
        require_contained(tmp_path / "run", "run")
    monkeypatch.undo()
    require_contained(tmp_path / "gone", "run")


def test_links_in_the_folders_of_a_source_do_not_lead_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "secret.png")
    private = (tmp_path / "secret.png").read_bytes()
    rows = {"image": [private] * 3, "caption": ["a b", "c d", "e f"]}
    parquet.write_table(pa.table(rows), tmp_path / "secret.parquet")
    with tarfile.open(tmp_path / "secret.tar", "w") as tar:
        tar.add(tmp_path / "secret.png", "1.png")
    for ending in ("parquet", "tar"):
        folder = tmp_path / ending
        folder.mkdir()
        (folder / f"train.{ending}").symlink_to(tmp_path / f"secret.{ending}")
        assert main(["prepare", str(folder), "--out", str(tmp_path / "out")]) == 1
        assert "cp -rL" in capsys.readouterr().err
    hf = tmp_path / "hf"
    hf.mkdir()
    for name in ("../secret.arrow", str(tmp_path / "secret.arrow")):
        (hf / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
        assert main(["prepare", str(hf), "--out", str(tmp_path / "out")]) == 1
        assert "must lie in the folder" in capsys.readouterr().err
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(4):
        shutil.copy(tmp_path / "secret.png", photos / f"{number}.png")
    (photos / "within.png").symlink_to("0.png")
    (photos / "link.png").symlink_to(tmp_path / "secret.png")
    (photos / "elsewhere").symlink_to(tmp_path)
    table = tmp_path / "captions.csv"
    given = ["prepare", str(table), "--images", str(photos), "--split", "train", "--out", str(tmp_path / "out")]
    inner = [*(f"{number}.png" for number in range(4)), "within.png"]
    for outer in ("link.png", "elsewhere/secret.png", ""):
        names = [*inner, *([outer] if outer else [])]
        table.write_text("image,caption\n" + "".join(f"{name},a red square {name}\n" for name in names))
        assert main(given) == (1 if outer else 0)
        assert (f"{outer!r} is a link out of it" in capsys.readouterr().err) == bool(outer)
    assert set(StoredDataset.open(tmp_path / "out").split("train").keys) == set(inner)
