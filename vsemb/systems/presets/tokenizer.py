"""Tokenizers of keras-hub presets, rebuilt in graph from their files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.errors import DataError
from vsemb.files import read_bytes, read_json, read_text, reading
from vsemb.parts import Size
from vsemb.systems.presets.files import (
    ASSETS,
    CONFIG,
    PREPROCESSOR,
    TOKENIZER,
    display_name,
    keep_preset,
    kept_name,
    opening,
    preset_directory,
    read_part,
    require_preset,
)
from vsemb.systems.presets.subwords import (
    BytePairTokenizer,
    PieceModel,
    PretrainedSubwordTokenizer,
    SentencePieceTokenizer,
    piece_vocabulary,
)
from vsemb.text.tokenizers import Tokenizer, TokenizerPart
from vsemb.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset

_CLIP_SPECIALS = ("<|startoftext|>", "<|endoftext|>")
# Fields of a tokenizer of which the graph honours one value; null or absent is this value, too.
_ONLY: dict[str, dict[str, Any]] = {
    "CLIP": {"add_prefix_space": False, "unsplittable_tokens": list(_CLIP_SPECIALS), "sequence_length": None},
    "SigLIP": {"add_bos": False, "add_eos": False, "sequence_length": None},
}


@dataclass(frozen=True)
class PresetText:
    """Text preprocessing of a preset.

    Attributes:
        kind: `"CLIP"` or `"SigLIP"`.
        network: keras-hub's configuration of the dual encoder.
        length: number of ids per text, including start, end and padding.
        lower: whether to lower-case texts; for SigLIP also to remove punctuation.
        start: published id at the start of a text; None to omit it.
        end: published id at the end of a text; None to omit it.
        padding: published id of padding.
        pieces: published subwords by id.
        assets: directory of the tokenizer's files.

    Example:

        texts = PresetText.open("hub:clip_vit_base_patch16")
        tokenizer = texts.tokenizer(max_length=64)
    """

    kind: str
    network: dict[str, Any]
    length: int
    lower: bool
    start: int | None
    end: int | None
    padding: int
    pieces: tuple[str, ...]
    assets: Path

    @classmethod
    def open(cls, name: str) -> PresetText:
        """Read a preset.

        Args:
            name: see `vsemb.systems.presets.files`.

        Raises:
            DataError: if it cannot be opened or its tokenizer is not supported.
        """
        directory = preset_directory(name)
        network, tokenizer = read_part(directory, CONFIG), read_part(directory, TOKENIZER)
        assert network is not None
        preprocessor = (read_part(directory, PREPROCESSOR) or {"config": {}})["config"]
        class_name = "none" if tokenizer is None else tokenizer["class_name"]
        kind = class_name.removesuffix("Tokenizer")
        if tokenizer is None or kind not in _ONLY or network["class_name"] != f"{kind}Backbone":
            raise DataError(
                f"The preset {name!r} must be a CLIP or SigLIP with its tokenizer, such as hub:clip_vit_base_patch16; "
                f"got {network['class_name']} with {class_name} as tokenizer."
            )
        for field, only in _ONLY[kind].items():
            value = tokenizer["config"].get(field)
            if value not in (None, only):
                path = directory / TOKENIZER
                raise DataError(f"`{field}` in {path} must be {json.dumps(only)}; got {json.dumps(value)}.")
        with opening(str(directory)):
            assets = directory / ASSETS
            text = network["config"]["text_encoder"]["config"]
            longest = int(text["max_sequence_length"])
            if kind == "CLIP":
                pieces, lower = _pieces(assets), "to_lower"
                start, end = (_id(pieces, word, assets) for word in _CLIP_SPECIALS)
                padding = end if tokenizer["config"].get("pad_with_end_token", False) else 0
                length = min(int(preprocessor.get("sequence_length", 77)), longest)
            else:
                pieces, lower = _model(assets).pieces, "canonicalize_text"
                # SigLIP pads every text to the number of its positions.
                start, length = None, longest
                end = padding = _id(pieces, "</s>", assets)
            if len(pieces) > int(text["vocabulary_size"]):
                raise DataError(
                    f"The tokenizer of the preset {name!r} must have at most {text['vocabulary_size']} subwords, the "
                    f"size of its network; got {len(pieces)}."
                )
            return cls(
                kind,
                network,
                length,
                bool(preprocessor.get(lower, True)),
                start if preprocessor.get("add_start_token", True) else None,
                end if preprocessor.get("add_end_token", True) else None,
                padding,
                pieces,
                assets,
            )

    @property
    def most_pieces(self) -> int:
        """Maximum number of subwords read of a text."""
        return self.length - (self.start is not None) - (self.end is not None)

    @property
    def vocabulary(self) -> Vocabulary:
        """The subwords as a run's vocabulary."""
        return piece_vocabulary(self.pieces)

    def tokenizer(self, max_length: int, vocabulary: Vocabulary | None = None) -> PretrainedSubwordTokenizer:
        """Build the tokenizer: raw strings to published ids + 2, without start and end.

        Args:
            max_length: longer texts are truncated to this many subwords, and to `most_pieces`.
            vocabulary: `vocabulary`, if already computed.

        Raises:
            DataError: if its files cannot be read.
        """
        vocabulary = vocabulary or self.vocabulary
        max_length = min(max_length, self.most_pieces)
        if self.kind == "SigLIP":
            return SentencePieceTokenizer(vocabulary, _model(self.assets), max_length, self.lower)
        ids = {piece: number for number, piece in enumerate(self.pieces)}
        unknown = ids[_CLIP_SPECIALS[-1]]
        return BytePairTokenizer(vocabulary, ids, _merges(self.assets), _CLIP_SPECIALS, unknown, max_length, self.lower)


def _pieces(assets: Path) -> tuple[str, ...]:
    path = assets / "vocabulary.json"
    numbers = read_json(path, "vocabulary")
    # As JSON, since True and 1.0 equal 1.
    if not isinstance(numbers, dict) or set(map(json.dumps, numbers.values())) != set(map(str, range(len(numbers)))):
        raise DataError(f"{path} must map each subword to a distinct number from 0.")
    return tuple(sorted(numbers, key=numbers.__getitem__))


def _id(pieces: tuple[str, ...], piece: str, assets: Path) -> int:
    if piece not in pieces:
        raise DataError(f"The vocabulary in {assets} must contain {piece}.")
    return pieces.index(piece)


def _merges(assets: Path) -> list[tuple[str, str]]:
    path = assets / "merges.txt"
    with reading(path, "list of merges"):
        lines = read_text(path).split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line.strip() and "#version:" not in line]
    if any(len(pair) != 2 for pair in pairs) or len(set(pairs)) < len(pairs):
        raise DataError(f"{path} must be a list of distinct merges, two subwords separated by a space per line.")
    return [(left, right) for left, right in pairs]


def _model(assets: Path) -> PieceModel:
    path = assets / "vocabulary.spm"
    with reading(path, "sentencepiece model"):
        return PieceModel.read(read_bytes(path), str(path))


@dataclass(frozen=True)
class PresetTokens(TokenizerPart, kind="preset"):
    """Tokenizer of a CLIP or SigLIP preset of keras-hub, rebuilt in graph.

    Attributes:
        name: `hub:` and the name, handle or directory of the preset.
        max_length: longer captions are truncated to this many subwords, and to the preset's maximum.
    """

    name: str = ""
    max_length: Size = 64

    @property
    def label(self) -> str:
        return display_name(self.name)

    def check(self) -> None:
        require_preset("text.tokenizer.name", self.name)

    @property
    def length(self) -> int:
        return self.max_length

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        return PresetText.open(self.name).vocabulary

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        return PresetText.open(self.name).tokenizer(self.max_length, vocabulary)

    def keep_files(self, folder: Path) -> None:
        keep_preset(self.name, folder, "text")

    def localized(self, path: Path) -> PresetTokens:
        return replace(self, name=kept_name(self.name, path, "text"))
