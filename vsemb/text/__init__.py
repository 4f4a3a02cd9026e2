"""Text room: strings to ids, in graph, the same code in training and serving."""

from vsemb.text.tokenizers import WordTokenizer
from vsemb.text.vectors import read_word_vectors
from vsemb.text.vocabulary import Vocabulary

__all__ = ["Vocabulary", "WordTokenizer", "read_word_vectors"]
