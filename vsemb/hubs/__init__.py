"""Hubs: items that are near to many queries, and so rank too high for most of them.

`HubCorrection` corrects embeddings in the model, with a bank of training items that `vsemb.training.HubBankValidation`
fills. `correct_hubs` corrects the scores of an evaluation, with its own queries.
"""

from vsemb.hubs.correction import HubCorrection
from vsemb.hubs.scaling import correct_hubs

__all__ = ["HubCorrection", "correct_hubs"]
