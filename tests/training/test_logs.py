"""What a person reads of a running `fit`."""

from __future__ import annotations

import pytest

from vsemb.training.logs import ProgressBar

ZERO_SHOT = {"val_top1": 61.23, "val_average_precision": 40.0, "val_zero_shot": 50.615}
RETRIEVAL = {"val_i2t_R@1": 12.34, "val_t2i_R@1": 5.0, "val_recall_sum": 99.95}
ENTAILMENT = {"val_accuracy": 0.875, "val_average_precision": 0.5}
CAPTIONS = {"val_log2_likelihood": -3.0, "val_perplexity": 8.0, "val_cider": 41.25}


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ({}, []),
        (ZERO_SHOT, ["val top-1 61.2 %", "AP@50 40.0 %", "their mean 50.6"]),
        (RETRIEVAL, ["val R@1 image→text 12.3 text→image 5.0", "recall sum 100.0"]),
        (ENTAILMENT, ["val accuracy 87.5 %", "average precision 50.0 %"]),
        (CAPTIONS, ["val perplexity 8.00", "val CIDEr 41.2"]),
    ],
)
def test_the_line_of_an_epoch_shows_what_was_validated(logs, said, capsys) -> None:
    bar = ProgressBar(steps=2, pairs=4, epochs=3)
    bar.on_epoch_begin(1)
    bar.on_epoch_end(1, {"loss": 0.12345, **logs})
    parts = capsys.readouterr().err.strip().splitlines()[-1].split("  ")
    assert parts[:-1] == ["epoch 2/3", "loss 0.1235", *said] and parts[-1].endswith(" s")
