"""Models of zero-shot recognition for `tests.systems.test_steps`."""

from __future__ import annotations

from tests.models.replicas_chunks_script import SIZES
from tests.models.replicas_script import dual_encoder
from vsemb.systems.zero_shot.structured_loss import StructuredJointEmbedding

REPLICAS = {
    "structured": lambda: dual_encoder(lambda: StructuredJointEmbedding(0.5), classes=True),
    "structured-released": lambda: dual_encoder(lambda: StructuredJointEmbedding(0.5, "all"), classes=True),
}
CHUNKS = {"structured": (lambda: StructuredJointEmbedding(0.5), "classes", SIZES)}
