"""Tokenizers of presets, rebuilt in graph from their files."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_bytes, read_json, read_text, reading
from vsemb.parts import Size
from vsemb.systems.presets.files import (
    ASSETS,
    CONFIG,
    DUAL,
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
    CONTROL,
    SHIFT,
    UNKNOWN_PIECE,
    BertWordPieceTokenizer,
    ByteMergeTokenizer,
    BytePairTokenizer,
    CanonicalTokenizer,
    PieceMerges,
    PieceMergeTokenizer,
    PieceModel,
    PretrainedSubwordTokenizer,
    SentencePieceTokenizer,
    piece_vocabulary,
)
from vsemb.text.subwords import CONTINUES
from vsemb.text.tokenizers import Tokenizer, TokenizerPart
from vsemb.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset

_CLIP_SPECIALS = ("<|startoftext|>", "<|endoftext|>")


class _Files(NamedTuple):
    """What the files of a preset say about texts.

    Attributes:
        network: keras-hub's configuration of the network.
        longest: number of positions of the text network.
        assets: directory of the tokenizer's files.
        tokenizer, preprocessor: arguments of keras-hub's classes; empty for the preset's defaults.
    """

    network: dict[str, Any]
    longest: int
    assets: Path
    tokenizer: Mapping[str, Any]
    preprocessor: Mapping[str, Any]

    @property
    def steps(self) -> int:
        """Number of ids per text."""
        return min(int(self.preprocessor.get("sequence_length") or self.longest), self.longest)


@dataclass(frozen=True)
class PresetText(ABC):
    """Text preprocessing of a preset; subclasses are the kinds of tokenizers.

    Attributes:
        network: keras-hub's configuration of the network.
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

    network: dict[str, Any]
    length: int
    lower: bool
    start: int | None
    end: int | None
    padding: int
    pieces: tuple[str, ...]
    assets: Path

    #: Name of the variant of a run.
    variant: ClassVar[str]
    paper: ClassVar[str]
    #: Classes of networks in keras-hub.
    networks: ClassVar[tuple[str, ...]]
    #: Whether the network needs texts padded to `length`, because it pools the last position.
    fixed: ClassVar[bool] = False
    #: Whether a space is part of the subword behind it, which then depends on the text before it.
    joins_spaces: ClassVar[bool] = False
    # Fields of the tokenizer of which the graph honours one value; null or absent is this value, too.
    only: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def open(name: str) -> PresetText:
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
        kind = _KINDS.get(class_name)
        if tokenizer is None or kind is None or network["class_name"] not in kind.networks:
            raise DataError(
                f"The preset {name!r} must be a CLIP, MetaCLIP 2, SigLIP, BERT, RoBERTa or XLM-R with its tokenizer, "
                f"such as hub:clip_vit_base_patch16; got {network['class_name']} with {class_name} as tokenizer."
            )
        for field, only in kind.only.items():
            value = tokenizer["config"].get(field)
            if value not in (None, only):
                path = directory / TOKENIZER
                raise DataError(f"`{field}` in {path} must be {json.dumps(only)}; got {json.dumps(value)}.")
        with opening(str(directory)):
            text = network["config"]
            if network["class_name"] in DUAL:
                text = text["text_encoder"]["config"]
            longest = int(text["max_sequence_length"])
            texts = kind._read(_Files(network, longest, directory / ASSETS, tokenizer["config"], preprocessor))
            if len(texts.pieces) > int(text["vocabulary_size"]):
                raise DataError(
                    f"The tokenizer of the preset {name!r} must have at most {text['vocabulary_size']} subwords, the "
                    f"size of its network; got {len(texts.pieces)}."
                )
            return texts

    @classmethod
    @abstractmethod
    def _read(cls, files: _Files) -> Self:
        """Read the tokenizer's files."""

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
        return self._build(vocabulary or self.vocabulary, min(max_length, self.most_pieces))

    def prefix_ids(self, prefix: str) -> list[int]:
        """Return the published ids of a text that is put before other texts.

        Raises:
            InvalidArgumentError: for a text that the tokenizer joins with the next word.
        """
        tokenizer = self.tokenizer(self.most_pieces)
        first, word, both = tokenizer.ragged([prefix, "a", f"{prefix}a"]).to_list()
        if [*first, *word] != both or (prefix and self.joins_spaces):
            allowed = (
                f"at most {self.most_pieces - 1} subwords that are not joined with the next word, such as 'query: '"
            )
            raise invalid_argument("prefix", prefix, allowed)
        return [number - SHIFT for number in first]

    @abstractmethod
    def _build(self, vocabulary: Vocabulary, max_length: int) -> PretrainedSubwordTokenizer:
        """Build the tokenizer for a number of subwords."""


class ClipText(PresetText):
    """CLIP's texts: words split into subwords of bytes."""

    variant = "clip"
    paper = "Radford et al. 2021, arXiv:2103.00020"
    networks = ("CLIPBackbone",)
    only = {"add_prefix_space": False, "unsplittable_tokens": list(_CLIP_SPECIALS), "sequence_length": None}

    @classmethod
    def _read(cls, files: _Files) -> Self:
        pieces = _pieces(files.assets)
        start, end = (_id(pieces, word, files.assets) for word in _CLIP_SPECIALS)
        return cls(
            files.network,
            min(int(files.preprocessor.get("sequence_length", 77)), files.longest),
            bool(files.preprocessor.get("to_lower", True)),
            start if files.preprocessor.get("add_start_token", True) else None,
            end if files.preprocessor.get("add_end_token", True) else None,
            end if files.tokenizer.get("pad_with_end_token", False) else 0,
            pieces,
            files.assets,
        )

    def _build(self, vocabulary: Vocabulary, max_length: int) -> BytePairTokenizer:
        ids = {piece: number for number, piece in enumerate(self.pieces)}
        unknown = ids[_CLIP_SPECIALS[-1]]
        return BytePairTokenizer(vocabulary, ids, _merges(self.assets), _CLIP_SPECIALS, unknown, max_length, self.lower)


class SiglipText(PresetText):
    """SigLIP's texts: a unigram model of sentencepiece, padded to the number of positions."""

    variant = "siglip"
    paper = "Zhai, Mustafa, Kolesnikov, Beyer 2023, arXiv:2303.15343"
    networks = ("SigLIPBackbone",)
    fixed = True
    only = {"add_bos": False, "add_eos": False, "sequence_length": None}

    @classmethod
    def _read(cls, files: _Files) -> Self:
        pieces = _model(files.assets).pieces
        end = _id(pieces, "</s>", files.assets)
        with_end = end if files.preprocessor.get("add_end_token", True) else None
        return cls(
            files.network,
            files.longest,
            bool(files.preprocessor.get("canonicalize_text", True)),
            None,
            with_end,
            end,
            pieces,
            files.assets,
        )

    def _build(self, vocabulary: Vocabulary, max_length: int) -> SentencePieceTokenizer:
        return SentencePieceTokenizer(
            vocabulary, _model(self.assets), max_length, lower=self.lower, punctuation=not self.lower
        )


class MetaClip2Text(PresetText):
    """MetaCLIP 2's texts: the unigram model of XLM-V, whose ids begin with four names of their own."""

    variant = "metaclip-2"
    paper = "Chuang et al. 2025, arXiv:2507.22062"
    networks: ClassVar[tuple[str, ...]] = ("MetaCLIP2Backbone",)
    only = {"add_bos": False, "add_eos": False, "sequence_length": None}

    @classmethod
    def _read(cls, files: _Files) -> Self:
        return cls(
            files.network,
            min(int(files.preprocessor.get("sequence_length", files.longest)), files.longest),
            bool(files.preprocessor.get("to_lower", files.tokenizer.get("to_lower", True))),
            0 if files.preprocessor.get("add_start_token", True) else None,
            2 if files.preprocessor.get("add_end_token", True) else None,
            1,
            _xlm(files.assets).pieces,
            files.assets,
        )

    def _build(self, vocabulary: Vocabulary, max_length: int) -> SentencePieceTokenizer:
        return SentencePieceTokenizer(vocabulary, _xlm(self.assets), max_length, lower=self.lower, punctuation=True)


class Siglip2Text(PresetText):
    """SigLIP 2's texts in the transformers library: Gemma's byte-pair encoding, padded to the number of positions."""

    variant = "siglip-2"
    paper = "Tschannen et al. 2025, arXiv:2502.14786"
    networks = ("SigLIPBackbone",)
    joins_spaces = True
    fixed = True

    @classmethod
    def _read(cls, files: _Files) -> Self:
        ids = PieceMerges.read(files.assets / "tokenizer.json").ids
        pieces = tuple(sorted(ids, key=ids.__getitem__))
        end, padding = (_id(pieces, word, files.assets) for word in ("<eos>", "<pad>"))
        return cls(files.network, files.longest, True, None, end, padding, pieces, files.assets)

    def _build(self, vocabulary: Vocabulary, max_length: int) -> PieceMergeTokenizer:
        return PieceMergeTokenizer(vocabulary, PieceMerges.read(self.assets / "tokenizer.json"), max_length, self.lower)


class _CanonicalText(PresetText):
    """Texts that open_clip brings into a canonical form before it splits them."""

    def _build(self, vocabulary: Vocabulary, max_length: int) -> CanonicalTokenizer:
        return CanonicalTokenizer(super()._build(vocabulary, max_length))  # type: ignore[safe-super]


class CanonicalSiglipText(_CanonicalText, SiglipText):
    """SigLIP's texts in open_clip."""


class CanonicalSiglip2Text(_CanonicalText, Siglip2Text):
    """SigLIP 2's texts in open_clip, which have no punctuation."""


@dataclass(frozen=True)
class BertText(PresetText):
    """BERT's texts: words and signs, split into WordPieces.

    Attributes:
        strip_accents: whether to remove accents and other marks.
    """

    variant = "bert"
    paper = "Devlin, Chang, Lee, Toutanova 2019, arXiv:1810.04805"
    networks = ("BertBackbone",)
    only = {
        "split": True,
        "suffix_indicator": CONTINUES,
        "oov_token": UNKNOWN_PIECE,
        "special_tokens_in_strings": False,
        "sequence_length": None,
    }

    strip_accents: bool = False

    @classmethod
    def _read(cls, files: _Files) -> Self:
        path = files.assets / "vocabulary.txt"
        with reading(path, "vocabulary"):
            pieces = tuple(read_text(path).removesuffix("\n").split("\n"))
        if len(set(pieces)) < len(pieces):
            raise DataError(f"{path} must be a list of distinct subwords, one per line.")
        start, end, padding, _ = (
            _id(pieces, name, files.assets) for name in ("[CLS]", "[SEP]", "[PAD]", UNKNOWN_PIECE)
        )
        return cls(
            files.network,
            files.steps,
            bool(files.tokenizer.get("lowercase", False)),
            start,
            end,
            padding,
            pieces,
            files.assets,
            bool(files.tokenizer.get("strip_accents", False)),
        )

    def _build(self, vocabulary: Vocabulary, max_length: int) -> BertWordPieceTokenizer:
        return BertWordPieceTokenizer(vocabulary, self.pieces, max_length, self.lower, self.strip_accents)


class RobertaText(PresetText):
    """RoBERTa's texts: words with the space before them, split into subwords of bytes."""

    variant = "roberta"
    paper = "Liu et al. 2019, arXiv:1907.11692"
    networks = ("RobertaBackbone",)
    joins_spaces = True
    only = {"add_prefix_space": False, "sequence_length": None}

    @classmethod
    def _read(cls, files: _Files) -> Self:
        pieces = _pieces(files.assets)
        start, end, padding = (_id(pieces, name, files.assets) for name in ("<s>", "</s>", "<pad>"))
        return cls(files.network, files.steps, False, start, end, padding, pieces, files.assets)

    def _build(self, vocabulary: Vocabulary, max_length: int) -> ByteMergeTokenizer:
        ids = {piece: number for number, piece in enumerate(self.pieces)}
        return ByteMergeTokenizer(vocabulary, ids, _merges(self.assets), max_length)


class XlmRobertaText(MetaClip2Text):
    """Texts of XLM-R and of multilingual E5."""

    variant = "xlm-roberta"
    paper = "Conneau et al. 2020, arXiv:1911.02116"
    networks = ("XLMRobertaBackbone", "BertBackbone")

    @classmethod
    def _read(cls, files: _Files) -> Self:
        return cls(files.network, files.steps, False, 0, 2, 1, _xlm(files.assets).pieces, files.assets)


# Class of a tokenizer in a preset -> kind of text.
_KINDS: dict[str, type[PresetText]] = {
    "CLIPTokenizer": ClipText,
    "MetaCLIP2Tokenizer": MetaClip2Text,
    "SigLIPTokenizer": SiglipText,
    "Siglip2Tokenizer": Siglip2Text,
    "CanonicalSigLIPTokenizer": CanonicalSiglipText,
    "CanonicalSiglip2Tokenizer": CanonicalSiglip2Text,
    "BertTokenizer": BertText,
    "RobertaTokenizer": RobertaText,
    "XLMRobertaTokenizer": XlmRobertaText,
}


def _xlm(assets: Path) -> PieceModel:
    """Return a model with the ids of the transformers library: four names, then subwords."""
    model = _model(assets)
    # The file begins with <unk>, <s>, </s>.
    places = [1, 0, 2, 0, *range(3, len(model.pieces))]
    return replace(
        model,
        pieces=("<s>", "<pad>", "</s>", "<unk>", *model.pieces[3:]),
        scores=model.scores[places],
        kinds=tuple(CONTROL if number < 3 else model.kinds[place] for number, place in enumerate(places)),
    )


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
    """Tokenizer of a CLIP, MetaCLIP 2, SigLIP, BERT, RoBERTa or XLM-R preset, rebuilt in graph.

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
