"""Dependency trees: parses, Tree-LSTM, the twin network."""

from vsemb.registry import System

SYSTEM = System(
    name="trees",
    recipes={"tree-twin": "vsemb.systems.trees.tree_twin:TREE_TWIN"},
    parts={
        "tokenizer": {"trees": "vsemb.systems.trees.parse_texts"},
        "text encoder": dict.fromkeys(("tree-lstm", "child-sum-tree-lstm"), "vsemb.systems.trees.tree_lstm"),
    },
    annotations={"parses": "vsemb.systems.trees.parses:find"},
    modes={"annotate": {"dependencies": "vsemb.systems.trees.annotate_command"}},
    options={"run": ("vsemb.systems.trees.parser_option",)},
    client_methods={
        "encode_tree": "vsemb.systems.trees.client:encode_tree",
        "search_tree": "vsemb.systems.trees.client:search_tree",
    },
    client_texts={"tree": "vsemb.systems.trees.client:TextParser"},
)
