"""Dependency trees: parses, Tree-LSTM, the twin network."""

from vsemb.registry import Command, System

SYSTEM = System(
    name="trees",
    recipes={"tree-twin": "vsemb.systems.trees.tree_twin:TREE_TWIN"},
    parts={
        "tokenizer": {
            "trees": "vsemb.systems.trees.parse_texts",
            "labelled-trees": "vsemb.systems.trees.parse_texts",
        },
        "text encoder": {
            "tree-lstm": "vsemb.systems.trees.tree_lstm",
            "child-sum-tree-lstm": "vsemb.systems.trees.tree_lstm",
            "sdt-rnn": "vsemb.systems.trees.sdt_rnn",
            "dependency-edges": "vsemb.systems.trees.dependency_edges",
            "projection-mlp": "vsemb.systems.trees.twin_network",
        },
        "projection": {"mlp": "vsemb.systems.trees.twin_network"},
        "annotation": {"dependencies": "vsemb.systems.trees.annotation"},
        "optimizer": {"rising-momentum-sgd": "vsemb.systems.trees.rising_momentum"},
    },
    annotations={"parses": "vsemb.systems.trees.parses:find"},
    commands={
        "parser": Command(
            "vsemb.systems.trees.api:set_parser",
            "give a run on dependency trees another parser",
            ("vsemb parser runs/trees en_core_web_sm",),
        ),
    },
    examples={
        "annotate": (
            "vsemb annotate data/flickr8k dependencies --model en_core_web_sm",
            "vsemb annotate data/flickr8k dependencies --conllu captions.conllu.gz --model pipelines/en_ewt",
        ),
        "train": ("vsemb train tree-twin --variant tuned --data data/flickr8k --out runs/trees",),
    },
    client_methods={
        "encode_tree": "vsemb.systems.trees.client:encode_tree",
        "search_tree": "vsemb.systems.trees.client:search_tree",
        "encode_labelled_tree": "vsemb.systems.trees.client:encode_labelled_tree",
        "search_labelled_tree": "vsemb.systems.trees.client:search_labelled_tree",
    },
    client_texts={
        "tree": "vsemb.systems.trees.client:TextParser",
        "labelled_tree": "vsemb.systems.trees.client:TextParser",
    },
)
