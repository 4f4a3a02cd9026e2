"""Everything that this package adds to vsemb, by name."""

from vsemb.registry import System

SYSTEM = System(
    name="outsider",
    recipes={"outsider": "outsider.recipe:OUTSIDER", "paraphrase": "outsider.paraphrase:PARAPHRASE"},
    parts={
        "reader": {"sidecar": "outsider.sidecar"},
        "task": {"paraphrase": "outsider.paraphrase"},
        "tokenizer": {"trigrams": "outsider.trigrams"},
        "text encoder": {"gated-mean": "outsider.gated_mean"},
        "similarity": {"euclidean": "outsider.euclidean"},
        "protocol": {"paraphrase": "outsider.evaluate_paraphrase"},
        "loss": {"soft-margin": "outsider.soft_margin"},
    },
)
