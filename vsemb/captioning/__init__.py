"""Captioning room: from a model of the next word to captions of images, in graph."""

from vsemb.captioning.beam_search import Hypotheses, beam_search
from vsemb.captioning.captioner import Captioner, Captions, NeuralCaptioner, detokenize
from vsemb.captioning.kneser_ney import KneserNeyTrigram
from vsemb.captioning.ranking import RankingWeights
from vsemb.captioning.sampling import Sampler, sample
from vsemb.captioning.structure_content import StructureContentCaptioner

__all__ = [
    "Captioner",
    "Captions",
    "Hypotheses",
    "KneserNeyTrigram",
    "NeuralCaptioner",
    "RankingWeights",
    "Sampler",
    "StructureContentCaptioner",
    "beam_search",
    "detokenize",
    "sample",
]
