"""What a person reads of a running `fit`."""

from __future__ import annotations

from vsemb.training.callbacks import ProgressBar
from vsemb.training.validation import RetrievalValidation

RETRIEVAL = {"val_i2t_R@1": 12.34, "val_t2i_R@1": 5.0, "val_recall_sum": 99.95}


def line(capsys, logs, **options) -> list[str]:
    """The parts of the line that an epoch ends with, without its time."""
    bar = ProgressBar(steps=2, pairs=4, epochs=3, **options)
    bar.on_epoch_begin(1)
    bar.on_epoch_end(1, {"loss": 0.12345, **logs})
    parts = capsys.readouterr().err.strip().splitlines()[-1].split("  ")
    assert parts[-1].endswith(" s")
    return parts[:-1]


def test_the_line_of_an_epoch_shows_what_was_validated(capsys) -> None:
    assert line(capsys, {}) == ["epoch 2/3", "loss 0.1235"]
    shown = RetrievalValidation.__new__(RetrievalValidation).shown
    said = ["val R@1 image→text 12.3 text→image 5.0", "recall sum 100.0"]
    assert line(capsys, RETRIEVAL, shown=shown) == ["epoch 2/3", "loss 0.1235", *said]
