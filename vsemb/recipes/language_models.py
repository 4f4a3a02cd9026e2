"""Kiros, Salakhutdinov, Zemel 2014 (arXiv:1411.2539): the neural language models, sections 2.3 to 2.5.

| equation | what | where |
| --- | --- | --- |
| 7, 8 | log-bilinear model | `vsemb.models.LogBilinear` |
| 9, 10 | multiplicative model, the tensor in factors | `vsemb.models.Multiplicative` |
| 11 | SC-NLM: parts of speech and content | `vsemb.models.StructureContent` |
"""

from __future__ import annotations

import dataclasses

from vsemb.recipes.schema import (
    BatchConfig,
    CaptionConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

_LOG_BILINEAR = Recipe(
    name="log-bilinear",
    variant="paper",
    paper="Kiros, Salakhutdinov, Zemel 2014, arXiv:1411.2539",
    task="language",
    embedding_dim=300,
    text=TextConfig(word_dim=300, min_count=5, max_length=40),
    caption=CaptionConfig(decoder="log-bilinear"),
    optimizer=OptimizerConfig(name="sgd", learning_rate=0.1),
    batches=BatchConfig(size=100),
    training=TrainingConfig(epochs=20, patience=3, select="perplexity"),
)


def _of(name: str) -> Recipe:
    return dataclasses.replace(
        _LOG_BILINEAR, name=name, caption=dataclasses.replace(_LOG_BILINEAR.caption, decoder=name)
    )


LOG_BILINEAR = {"paper": _LOG_BILINEAR}
MULTIPLICATIVE = {"paper": _of("multiplicative")}
SC_NLM = {"paper": _of("sc-nlm")}
