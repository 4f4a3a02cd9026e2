"""Text room: strings to ids, in graph, the same code in training and serving."""

from vsemb.text.characters import ALPHABET, CharacterTokenizer, alphabet_vocabulary
from vsemb.text.cooccurrence import cooccurrence_vectors
from vsemb.text.piece_learning import learn_sentencepieces, learn_wordpieces
from vsemb.text.subwords import BPETokenizer, UnigramTokenizer, WordPieceTokenizer
from vsemb.text.tokenizers import Tokenizer, WordTokenizer
from vsemb.text.vectors import read_word_vectors
from vsemb.text.vocabulary import Vocabulary

__all__ = [
    "ALPHABET",
    "BPETokenizer",
    "CharacterTokenizer",
    "Tokenizer",
    "UnigramTokenizer",
    "Vocabulary",
    "WordPieceTokenizer",
    "WordTokenizer",
    "alphabet_vocabulary",
    "cooccurrence_vectors",
    "learn_sentencepieces",
    "learn_wordpieces",
    "read_word_vectors",
]
