"""The model card: every export has one, and it says no more than is known."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from vsemb.exporting import ServedModel
from vsemb.exporting.card import Figures, ModelFacts, card_path, model_card, version_card_path
from vsemb.exporting.contract import Contract, contract_path, hashes

TRAINED = "Training data"

FACTS = ModelFacts(
    recipe="vsepp",
    variant="tuned",
    paper="Somebody 2018",
    dataset="scenes | <b>odd</b>\n# name",
    dataset_fingerprint="d00d",
    images="pixels at 32",
    features_fingerprint="f00d",
    selection="the best recall_sum on the split val, epoch 2",
    figures=[
        Figures("the split val, epoch 2", {"recall_sum": 311.25, "median_rank": 3.0}),
        Figures("the split test", {"recall_sum": 300.5}, {"recall_sum": (290.0, 310.0)}),
    ],
    licence="CC0",
    notes=("Trained in a test.",),
)


@pytest.fixture(scope="module")
def contract(exported) -> Contract:
    return Contract.read(contract_path(exported))


def sections(card: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)\n", card, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_it_lies_beside_the_contract_and_inside_the_version(exported):
    outer, inner = card_path(exported), version_card_path(exported / "1")
    assert outer == exported.parent / "contracts" / "scenes.md"
    assert inner == exported / "1" / "assets.extra" / "MODEL_CARD.md"
    assert outer.read_bytes() == inner.read_bytes()
    # Servers and the contract do not look there.
    assert not any("MODEL_CARD" in name for name in hashes(exported / "1"))


def test_what_is_known_is_said(contract):
    parts = sections(model_card(contract, FACTS))
    assert parts[""].startswith("# scenes, version 1\n")
    for said in (
        "vsepp, variant tuned",
        "Somebody 2018",
        f"`{contract.fingerprint}`",
        "sentences and images",
        "16 numbers",
    ):
        assert said in parts[""]
    trained = parts["Training data"]
    assert "`d00d`" in trained and "`f00d`" in trained and "pixels at 32" in trained
    # A name breaks neither lines nor tables, and is no HTML.
    assert "| dataset | scenes \\| &lt;b>odd&lt;/b> # name |" in trained
    chosen = parts["Selection of the weights"]
    assert "epoch 2." in chosen
    assert "| recall_sum | 311.2 |\n" in parts["Figures"]
    assert "| recall_sum | 300.5 | 290 to 310 |" in parts["Figures"]
    for name, sides in contract.signatures.items():
        assert f"| `{name}` | " in parts["Inputs and outputs"]
        assert all(f"`{key}`" in parts["Inputs and outputs"] for key in sides["outputs"])
    assert "`Cosine`" in parts["Inputs and outputs"] and "unit length" in parts["Inputs and outputs"]
    assert "4,096 bytes" in parts["Limits"] and "50,000,000 pixels" in parts["Limits"]
    assert "64 tokens" in parts["Limits"] and "It knows two labels." in parts["Limits"]
    assert "cannot parse" not in parts["Not supported"] and "Embedding images" not in parts["Not supported"]
    assert "Licence: CC0." in parts["Unknown"] and "Bias: not measured" in parts["Unknown"]
    assert parts["Notes"].startswith("\n- Trained in a test.\n")


def test_what_is_not_known_is_said_to_be_unknown(contract):
    parts = sections(model_card(contract, ModelFacts()))
    assert parts["Training data"].count("unknown") == 4
    assert "Unknown." in parts["Selection of the weights"]
    assert "ask the author of this file" in parts["Unknown"] and "Notes" not in parts


def test_what_a_model_lacks_is_said(contract, tiny_run):
    about = ServedModel(tiny_run.model, tiny_run.tokenizer).about
    card = model_card(replace(contract, about=about), ModelFacts())
    cannot = sections(card)["Not supported"]
    assert all(said in cannot for said in ("Embedding images", "Search:"))
    assert "pixels" not in card


def test_a_name_with_a_dot_keeps_it():
    assert card_path("/models/flickr8k.v2").name == "flickr8k.v2.md"


def test_images_that_are_no_features_have_no_fingerprint_to_be_known(contract):
    for images in ("pixels at 32", "none, pairs of sentences alone"):
        assert "features" not in sections(model_card(contract, ModelFacts(images=images)))[TRAINED]
