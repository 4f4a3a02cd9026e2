"""Damaged preset directories: a description and tokenizer, or an error of vsemb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutations import damaged, dumped, edits, json_values, read_damaged, with_value
from vsemb.systems.presets.network import ImagePreset
from vsemb.systems.presets.tokenizer import PresetText

CONFIG, CONVERTER = "config.json", "image_converter.json"
TOKENIZER, PREPROCESSOR, ASSETS = "tokenizer.json", "preprocessor.json", "assets/tokenizer"
#: (kind of preset, file that is damaged)
FILES = [
    *(("resnet", name) for name in (CONFIG, CONVERTER)),
    *(
        ("clip", name)
        for name in (CONFIG, TOKENIZER, PREPROCESSOR, f"{ASSETS}/vocabulary.json", f"{ASSETS}/merges.txt")
    ),
    *(("siglip", name) for name in (CONFIG, CONVERTER, f"{ASSETS}/vocabulary.spm")),
]
DOCUMENTS = [(kind, file) for kind, file in FILES if file.endswith(".json")]


def read(folder: Path) -> None:
    preset = ImagePreset.open(f"hub:{folder}")
    assert preset.size > 0 and preset.poolings and preset.any_size in (False, True)
    if (folder / TOKENIZER).exists():
        texts = PresetText.open(f"hub:{folder}")
        texts.tokenizer(8)(tf.constant(["a dog's ball", ""]))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "file"), FILES)
@given(changes=edits)
def test_damaged_bytes(kind: str, file: str, changes, preset_path) -> None:
    source = preset_path(kind)
    read_damaged(source, file, damaged((source / file).read_bytes(), changes), read)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "file"), DOCUMENTS)
@given(place=st.integers(0, 200), value=json_values)
def test_other_values(kind: str, file: str, place: int, value, preset_path) -> None:
    source = preset_path(kind)
    document = with_value(json.loads((source / file).read_text()), place, value)
    read_damaged(source, file, dumped(document), read)


@pytest.mark.parametrize(
    ("kind", "file", "change"),
    [
        ("resnet", CONVERTER, lambda content: b"[" * 2000),
        ("resnet", CONFIG, lambda content: dumped(json.loads(content) | {"class_name": []})),
        ("clip", f"{ASSETS}/merges.txt", lambda content: content + b"\n" + content),
    ],
)
def test_files_that_crashed(kind: str, file: str, change, preset_path) -> None:
    source = preset_path(kind)
    read_damaged(source, file, change((source / file).read_bytes()), read)
