"""The line of an epoch: what the validation of this system says of its logs."""

from vsemb.systems.captions.validation import CiderValidation

LOGS = {"val_log2_likelihood": -3.0, "val_perplexity": 8.0, "val_cider": 41.25}


def test_metrics_as_text() -> None:
    assert CiderValidation.__new__(CiderValidation).shown(LOGS) == "val perplexity 8.00  val CIDEr 41.2"
