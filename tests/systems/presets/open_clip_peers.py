"""Embeddings of tiny random models by open_clip: `python -m tests.systems.presets.open_clip_peers SETTINGS OUT`.

SETTINGS is a JSON file with `texts`, `images` and `models`: name -> `config`, `preprocessing` and `tokenizer`, which is
a directory, or null for open_clip's own. OUT becomes a folder with `trunks.json`, the SigLIPs of timm, and a checkpoint
per model, as the library saves it, with `outputs.npz`. It needs open_clip and no Keras: `make peers` installs it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.systems.presets.checkpoint_files import LAYERS, PATCH, TRUNK, WIDTH
from tests.systems.presets.texts import SIZE


def register_tiny_trunk() -> None:
    """Adds a SigLIP to timm with the sizes of the tiny checkpoints."""
    import timm

    def build(num_classes: int, global_pool: str, **others: Any) -> Any:
        return timm.models.VisionTransformer(
            img_size=SIZE,
            patch_size=PATCH,
            embed_dim=WIDTH,
            depth=LAYERS,
            num_heads=2,
            mlp_ratio=2.0,
            class_token=False,
            act_layer="gelu_tanh",
            num_classes=num_classes,
            global_pool=global_pool,
        )

    build.__name__, build.__module__ = TRUNK, timm.models.vision_transformer.__name__
    timm.models.register_model(build)


def trunks() -> dict[str, dict[str, Any]]:
    """Sizes and activations of all SigLIPs of timm that pool with attention."""
    import timm
    import torch

    found = {}
    for name in timm.list_models("vit_*_siglip_*"):
        if "gap" in name or name == TRUNK:
            continue
        with torch.device("meta"):
            model = timm.create_model(name, num_classes=0)
        block = model.blocks[0]
        found[name] = {
            "hidden_size": model.embed_dim,
            "num_hidden_layers": len(model.blocks),
            "num_attention_heads": block.attn.num_heads,
            "intermediate_size": block.mlp.fc1.out_features,
            "patch_size": model.patch_embed.patch_size[0],
            "hidden_act": {"GELU": "gelu", "GELUTanh": "gelu_pytorch_tanh"}[type(block.mlp.act).__name__],
        }
    return found


def save(model: dict[str, Any], folder: Path) -> None:
    """Writes a random model as the library does."""
    import open_clip
    import torch
    from open_clip.push_to_hf_hub import save_for_hf

    # The library reads the tokenizer and the configuration of a model from a directory.
    folder.mkdir(parents=True)
    content = {"model_cfg": model["config"], "preprocess_cfg": model["preprocessing"]}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    if model["tokenizer"] is not None:
        shutil.copytree(model["tokenizer"], folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    network = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.ndim > 1:
                # So large that different inputs have clearly different outputs.
                weight.normal_(std=0.3)
            elif "norm" not in name and "ln_" not in name and "logit" not in name:
                weight.normal_(std=0.1)
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    if model["tokenizer"] is None:
        _save_own_tokenizer(tokenizer, folder)
        tokenizer = _Saved()
    save_for_hf(network, tokenizer, model["config"], str(folder), safe_serialization=True)
    for pieces in folder.glob("*.model"):
        # It is in tokenizer.json, too.
        pieces.unlink()


class _Saved:
    """A tokenizer that was already saved."""

    def save_pretrained(self, folder: Path) -> None: ...


def _save_own_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Writes the tokenizer of open_clip with the names of the files, and of the ends of a text, in repositories."""
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    (folder / "vocab.json").write_text(json.dumps({names.get(word, word): n for word, n in tokenizer.encoder.items()}))
    merges = [" ".join(pair) for pair in sorted(tokenizer.bpe_ranks, key=tokenizer.bpe_ranks.__getitem__)]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")


def outputs(folder: Path, texts: list[str], images: list[Path], batch: int = 50) -> dict[str, np.ndarray]:
    """Return ids, whether a text is unchanged by ftfy, and embeddings of texts and images."""
    import html

    import ftfy
    import open_clip
    import torch

    network, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    network.eval()
    ids = open_clip.get_tokenizer(f"local-dir:{folder}")(texts)
    plain = [html.unescape(html.unescape(ftfy.fix_text(text))) == text for text in texts]
    with torch.no_grad():
        of_texts = [network.encode_text(ids[start : start + batch]) for start in range(0, len(texts), batch)]
        of_images = [network.encode_image(preprocess(Image.open(image))[None]) for image in images]
        scale = network.logit_scale.exp()
    bias = getattr(network, "logit_bias", None)
    return {
        "ids": ids.numpy(),
        "plain": np.array(plain),
        "texts": torch.cat(of_texts).numpy(),
        "images": torch.cat(of_images).numpy(),
        "scale": np.array([float(scale), *([] if bias is None else [float(bias)])]),
    }


def main() -> None:
    settings, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    known = trunks()
    register_tiny_trunk()
    for name, model in settings["models"].items():
        save(model, out / name)
        np.savez(out / name / "outputs.npz", **outputs(out / name, settings["texts"], settings["images"]))
    (out / "trunks.json").write_text(json.dumps(known))


if __name__ == "__main__":
    main()
