"""Dependency trees: parses, Tree-LSTM, the twin network."""

from vsemb.registry import System

SYSTEM = System(
    name="trees",
    recipes={"tree-twin": "vsemb.systems.trees.tree_twin:TREE_TWIN"},
    parts={
        "tokenizer": {"trees": "vsemb.systems.trees.parse_texts"},
        "text encoder": {
            "tree-lstm": "vsemb.systems.trees.tree_lstm",
            "child-sum-tree-lstm": "vsemb.systems.trees.tree_lstm",
            "projection-mlp": "vsemb.systems.trees.twin_network",
        },
        "projection": {"mlp": "vsemb.systems.trees.twin_network"},
        "optimizer": {"rising-momentum-sgd": "vsemb.systems.trees.rising_momentum"},
    },
    annotations={"parses": "vsemb.systems.trees.parses:find"},
    modes={"annotate": {"dependencies": "vsemb.systems.trees.commands:DEPENDENCIES"}},
    options={"run": ("vsemb.systems.trees.commands:PARSER",)},
    examples={
        "annotate": (
            "vsemb annotate data/flickr8k --dependencies --model en_core_web_sm",
            "vsemb annotate data/flickr8k --dependencies --conllu captions.conllu.gz --model pipelines/en_ewt",
        ),
        "train": ("vsemb train tree-twin --variant tuned --data data/flickr8k --out runs/trees",),
    },
    client_methods={
        "encode_tree": "vsemb.systems.trees.client:encode_tree",
        "search_tree": "vsemb.systems.trees.client:search_tree",
    },
    client_texts={"tree": "vsemb.systems.trees.client:TextParser"},
)
