"""Embeddings of checkpoints by the transformers library: `python -m tests.systems.presets.peers`.

Without arguments, it writes `published.json`, the outputs for the tiny checkpoints of `checkpoint_files`, which the
quick tests compare. With `--out FILE CHECKPOINT --texts FILE --images FILE…`, it writes the outputs of any checkpoint.
It needs transformers, torch and torchvision, and no Keras: `make peers` installs them into an environment of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.systems.presets.checkpoint_files import CHECKPOINTS, ENCODERS
from tests.systems.presets.texts import odd_texts, photographs

PUBLISHED = Path(__file__).with_name("published.json")
#: Texts and photographs of `published.json`.
TEXTS = odd_texts(20)[:6]
IMAGES = 3
#: Put before texts, as for E5.
PREFIX = "query: "


def outputs(checkpoint: Path, texts: list[str], images: list[Image.Image], batch: int = 50) -> dict[str, np.ndarray]:
    """Return ids, and embeddings of texts and images, with the processor of the checkpoint."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(checkpoint).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    processor = transformers.AutoImageProcessor.from_pretrained(checkpoint)
    steps = model.config.text_config.max_position_embeddings
    fixed = model.config.model_type == "siglip"
    rows = tokenizer(texts, padding="max_length", truncation=True, max_length=steps, return_tensors="pt")
    mask = None if fixed else rows["attention_mask"]
    of_texts, of_images = [], []
    with torch.no_grad():
        for start in range(0, len(texts), batch):
            part = slice(start, start + batch)
            masked = {} if mask is None else {"attention_mask": mask[part]}
            of_texts.append(_embedding(model.get_text_features(input_ids=rows["input_ids"][part], **masked)))
        for image in images:
            pixels = processor(image.convert("RGB"), return_tensors="pt")["pixel_values"]
            of_images.append(_embedding(model.get_image_features(pixel_values=pixels)))
    return {
        "ids": rows["input_ids"].numpy(),
        "texts": np.concatenate(of_texts),
        "images": np.concatenate(of_images),
        "scale": np.exp(model.logit_scale.detach().numpy()).reshape(()),
    }


def encoder_outputs(checkpoint: Path, texts: list[str], batch: int = 50) -> dict[str, np.ndarray]:
    """Return ids, and embeddings of texts by a text network: the mean over the tokens, and the first token."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(checkpoint).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    steps = tokenizer.model_max_length
    rows = tokenizer(texts, padding="max_length", truncation=True, max_length=steps, return_tensors="pt")
    means, firsts = [], []
    with torch.no_grad():
        for start in range(0, len(texts), batch):
            ids, mask = (rows[name][start : start + batch] for name in ("input_ids", "attention_mask"))
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
            there = mask[:, :, None]
            means.append(((states * there).sum(1) / there.sum(1)).numpy())
            firsts.append(states[:, 0].numpy())
    return {"ids": rows["input_ids"].numpy(), "mean": np.concatenate(means), "first": np.concatenate(firsts)}


def _embedding(output: Any) -> np.ndarray:
    return getattr(output, "pooler_output", output).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--texts", type=Path, help="JSON list")
    parser.add_argument("--images", type=Path, nargs="+", default=[])
    parser.add_argument("--saved", type=Path, help="where to save the checkpoint anew, by the library")
    arguments = parser.parse_args()
    if arguments.checkpoint is not None:
        if arguments.saved:
            _save(arguments.checkpoint, arguments.saved)
        texts = json.loads(arguments.texts.read_text())
        images = [Image.open(image) for image in arguments.images]
        both = outputs(arguments.checkpoint, texts, images) if images else encoder_outputs(arguments.checkpoint, texts)
        np.savez(arguments.out, **both)
        return
    images = [Image.open(io.BytesIO(content)) for content in photographs()[1][:IMAGES]]
    written = {}
    for kind, write in CHECKPOINTS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = outputs(write(Path(folder) / kind), TEXTS, images)
        written[kind] = {name: np.round(value, 5).tolist() for name, value in found.items()}
    for kind, write in ENCODERS.items():
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = write(Path(folder) / kind)
            found = encoder_outputs(checkpoint, TEXTS)
            prefixed = encoder_outputs(checkpoint, [f"{PREFIX}{text}" for text in TEXTS])
        written[kind] = {name: np.round(value, 5).tolist() for name, value in found.items()}
        written[kind]["prefixed"] = np.round(prefixed["mean"], 5).tolist()
    PUBLISHED.write_text(json.dumps(written, indent=1) + "\n")


def _save(checkpoint: Path, out: Path) -> None:
    import transformers

    kinds = ["AutoModel", "AutoTokenizer"]
    if (checkpoint / "preprocessor_config.json").exists():
        kinds.append("AutoImageProcessor")
    for kind in kinds:
        getattr(transformers, kind).from_pretrained(checkpoint).save_pretrained(out)


if __name__ == "__main__":
    main()
