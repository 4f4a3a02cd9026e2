"""The line of an epoch: what the validation of this system says of its logs."""

from vsemb.systems.entailment.validation import EntailmentValidation

LOGS = {"val_accuracy": 0.875, "val_average_precision": 0.5}


def test_metrics_as_text() -> None:
    assert (
        EntailmentValidation.__new__(EntailmentValidation).shown(LOGS)
        == "val accuracy 87.5 %  average precision 50.0 %"
    )
