"""A tiny spaCy pipeline, trained on a few sentences in a second, and trees of a dataset as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.systems.trees.parsers import Parser

#: words, heads (places from 0, the root its own), relations and tags of what it is trained on.
SENTENCES = [
    (
        "A black dog runs in the snow .",
        [2, 2, 3, 3, 6, 6, 3, 3],
        "det amod nsubj ROOT case det obl punct",
        "DT JJ NN VBZ IN DT NN .",
    ),
    ("Two dogs chase a ball .", [1, 2, 2, 4, 2, 2], "nummod nsubj ROOT det obj punct", "CD NNS VBP DT NN ."),
    (
        "The red circle is above a blue square .",
        [2, 2, 7, 7, 7, 7, 7, 7, 7],
        "det amod nsubj cop case det amod ROOT punct",
        "DT JJ NN VBZ IN DT JJ NN .",
    ),
    ("A man in a hat", [1, 1, 4, 4, 1], "det ROOT case det nmod", "DT NN IN DT NN"),
    ("Dogs run", [1, 1], "nsubj ROOT", "NNS VBP"),
]


def write_pipeline(folder: Path, updates: int = 100) -> Path:
    """Trains a tagger and a parser, adds a recognition of names, which no tree needs, and saves them.

    Args:
        folder: where to.
        updates: passes over the sentences.

    Returns:
        `folder`.
    """
    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example
    from spacy.util import fix_random_seed

    fix_random_seed(0)
    # English has a thousand exceptions, which take most of the time of opening a pipeline.
    nlp = spacy.blank("xx")
    width = {"width": 32, "embed_size": 200, "depth": 2}
    model = {"@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None} | width
    model |= {"window_size": 1, "maxout_pieces": 2, "subword_features": True}
    nlp.add_pipe("tok2vec", config={"model": model})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "*"}
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}})
    parsing = {"@architectures": "spacy.TransitionBasedParser.v2", "hidden_width": 32, "maxout_pieces": 2}
    parsing |= {"state_type": "parser", "extra_state_tokens": False, "use_upper": True, "tok2vec": listener}
    # Rare relations count too: every one is rare here.
    nlp.add_pipe("parser", config={"model": parsing, "min_action_freq": 1})
    examples = []
    for text, heads, relations, tags in SENTENCES:
        words = text.split()
        gold = Doc(nlp.vocab, words=words, heads=heads, deps=relations.split(), tags=tags.split())
        examples.append(Example(Doc(nlp.vocab, words=words), gold))
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(updates):
        nlp.update(examples, sgd=optimizer)
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "ANIMAL", "pattern": "dog"}])
    nlp.meta["name"] = "tiny"
    nlp.to_disk(folder)
    return folder


def captions_of(dataset: StoredDataset) -> int:
    """Returns how many captions a dataset has."""
    return sum(len(dataset.split(name).captions) for name in dataset.splits)


def conllu_of(dataset: StoredDataset, parser: Parser, path: Path) -> Path:
    """Writes all captions of a dataset as another program would write their trees, in another order."""
    from vsemb.systems.trees.trees import Sentence, write_conllu

    sentences = [
        Sentence(name, text, parser([text])[0])
        for split in map(dataset.split, dataset.splits)
        for name, text in zip(split.caption_ids, split.captions, strict=True)
    ]
    write_conllu(sentences[::-1], path)
    return path
