"""Tokenizers and vocabularies: strings to ids, in training and in a served graph."""

from vsemb.text.tokenizers import ALPHABET, CharacterTokenizer, Tokenizer, WordTokenizer
from vsemb.text.vocabulary import Vocabulary

__all__ = ["ALPHABET", "CharacterTokenizer", "Tokenizer", "Vocabulary", "WordTokenizer"]
