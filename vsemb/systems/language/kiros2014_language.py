"""Kiros, Salakhutdinov, Zemel 2014 (arXiv:1411.2539): the neural language models, sections 2.3 to 2.5.

| equation | what | where |
| --- | --- | --- |
| 7, 8 | log-bilinear model | `vsemb.systems.language.log_bilinear.LogBilinear` |
| 9, 10 | multiplicative model, the tensor in factors | `vsemb.systems.language.log_bilinear.Multiplicative` |
| 11 | SC-NLM: parts of speech and content | `vsemb.systems.language.log_bilinear.StructureContent` |
| u | the vector of the sentence itself, so that text alone is trained on | `--encoder RUN`, of `kiros2014` |
| supplement | candidates, their scores, the five best | `vsemb.systems.language.candidates.StructureContentCaptioner` |

K = G = 300 (`model.dim`) and F = 100 as in the paper. The multiplicative model takes u as it is, so there
G is the size of the encoder's space; in SC-NLM T^(u) maps u to G. Deviations and gaps we filled:

- Context size, look-ahead k, batch size, word threshold and learning rate are not given: 5 words, 3 tags, 100
  captions, words seen five times.
- Training is "stochastic gradient descent" there, at a rate that is not given. Variant `adam`, the default,
  is faster: of SC-NLM on Flickr8k the perplexity after 50 steps is 33, with SGD at 0.1 (variant `paper`) it
  is 83. Gradients are clipped to norm 5 in both.
- START fills the context in front of a sentence; END, which shares its vector, is predicted behind it. Behind
  the last word the parts of speech are those of END.
- Word vectors start uniform in +- 0.1 and matrices as Glorot has them; the one that reads a content vector,
  of unit length, starts with entries of deviation 1.
- The bias of the softmax starts at log word frequencies, `--set model.frequency_bias=false` at 0.
- Parts of speech are what `vsemb annotate --pos-tags` found or was given.
- A candidate, there "a MAP estimate", takes the likeliest word each time; `--set model.writing.beam=7` searches.
  The trigram model is that of the training captions, there of "a large corpus". The penalty of repeated words
  (`vsemb.systems.language.candidates.repetition_penalty`) has no formula there, and the score's weights, tuned by
  hand there, are those of the best CIDEr-D on validation images.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.recipes.schema import Training
from vsemb.systems.captions.task import CaptionBatches, WordText
from vsemb.systems.language.log_bilinear import LanguageModel, LogBilinearPart, MultiplicativePart, StructureContentPart
from vsemb.systems.language.recipe import Language
from vsemb.text.tokenizers import Words
from vsemb.training.optimizers import SGD, Adam


def _variants(model: LanguageModel) -> dict[str, Language]:
    assert model.kind is not None
    recipe = Language(
        name=model.kind,
        variant="adam",
        paper="Kiros, Salakhutdinov, Zemel 2014, arXiv:1411.2539",
        text=WordText(tokenizer=Words(min_count=5, max_length=40)),
        model=model,
        optimizer=Adam(learning_rate=1e-3, global_clipnorm=5.0),
        batches=CaptionBatches(size=100),
        training=Training(epochs=20, patience=2),
    )
    return {
        "adam": recipe,
        "paper": replace(recipe, variant="paper", optimizer=SGD(learning_rate=0.1, global_clipnorm=5.0)),
    }


LOG_BILINEAR = _variants(LogBilinearPart())
MULTIPLICATIVE = _variants(MultiplicativePart())
SC_NLM = _variants(StructureContentPart())
