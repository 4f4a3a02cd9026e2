"""Text room: strings to ids, in graph, the same code in training and serving."""

from vsemb.text.characters import ALPHABET, CharacterTokenizer, alphabet_vocabulary
from vsemb.text.class_names import ClassTokenizer
from vsemb.text.cooccurrence import cooccurrence_vectors
from vsemb.text.tokenizers import Tokenizer, WordTokenizer
from vsemb.text.vectors import read_word_vectors
from vsemb.text.vocabulary import Vocabulary

__all__ = [
    "ALPHABET",
    "CharacterTokenizer",
    "ClassTokenizer",
    "Tokenizer",
    "Vocabulary",
    "WordTokenizer",
    "alphabet_vocabulary",
    "cooccurrence_vectors",
    "read_word_vectors",
]
