"""Models of zero-shot recognition for `tests.systems.test_steps`."""

from __future__ import annotations

import functools

from tests.models.replica_cases import batches, dual_encoder, in_chunks
from vsemb.systems.zero_shot.structured_loss import StructuredJointEmbedding


def loss() -> StructuredJointEmbedding:
    return StructuredJointEmbedding(0.5)


REPLICAS = {"structured": lambda: dual_encoder(loss(), batches(classes=True))}
CHUNKS = {"structured": (functools.partial(in_chunks, loss, batches(classes=True)), {"block_size": 3})}
