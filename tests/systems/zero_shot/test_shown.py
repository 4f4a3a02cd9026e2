"""The line of an epoch: what the validation of this system says of its logs."""

from vsemb.systems.zero_shot.validation import ZeroShotValidation

LOGS = {"val_top1": 61.23, "val_average_precision": 40.0, "val_zero_shot": 50.615}


def test_metrics_as_text() -> None:
    assert (
        ZeroShotValidation.__new__(ZeroShotValidation).shown(LOGS) == "val top-1 61.2 %  AP@50 40.0 %  their mean 50.6"
    )
