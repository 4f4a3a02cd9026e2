"""Tiny checkpoints of transformers and open_clip, written without them: seeded weights, tokenizers, preprocessing."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import numpy as np

from tests.systems.presets.texts import CORPUS, SIZE, byte_vocabulary, clip_vocabulary, sentencepiece_model

LAYERS, WIDTH, INSIDE, PATCH, DIM = 2, 16, 32, 8, 12
#: Positions of text networks.
STEPS = 40
_MEAN, _DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def write_clip_checkpoint(path: Path) -> Path:
    vocabulary, merges = clip_vocabulary()
    path.mkdir()
    # Half of the published checkpoints have the two older files.
    _write(path / "vocab.json", vocabulary)
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    _write(path / "tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer", "model_max_length": 24})
    ends = {"bos_token_id": vocabulary["<|startoftext|>"], "eos_token_id": vocabulary["<|endoftext|>"]}
    _write_clip_network(path, "clip", len(vocabulary), ends)
    return path


def write_metaclip2_checkpoint(path: Path) -> Path:
    path.mkdir()
    settings = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2, "vocab_size": 80}
    (path / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(**settings))
    _write(path / "tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 24})
    _write_clip_network(path, "metaclip_2", 90, {"bos_token_id": 0, "eos_token_id": 2})
    return path


def write_siglip_checkpoint(path: Path) -> Path:
    path.mkdir()
    (path / "spiece.model").write_bytes(sentencepiece_model())
    _write(path / "tokenizer_config.json", {"tokenizer_class": "SiglipTokenizer", "model_max_length": 20})
    _write_siglip_network(path, 60, resample=3)
    return path


def write_siglip2_checkpoint(path: Path) -> Path:
    path.mkdir()
    content = gemma_tokenizer()
    _write(path / "tokenizer.json", content)
    settings = {"tokenizer_class": "Siglip2Tokenizer", "padding_side": "right", "model_max_length": 20}
    names = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk", "mask")}
    _write(path / "tokenizer_config.json", settings | names)
    _write_siglip_network(path, len(content["model"]["vocab"]), resample=2)
    return path


def write_bert_checkpoint(path: Path) -> Path:
    path.mkdir()
    pieces = word_pieces()
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": STEPS}
    _write(path / "tokenizer_config.json", settings)
    config = {"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2}
    config |= {"vocab_size": len(pieces), "max_position_embeddings": STEPS, "pad_token_id": pieces.index("[PAD]")}
    _write_encoder(path, config, positions=STEPS, segments=2)
    return path


def write_roberta_checkpoint(path: Path) -> Path:
    path.mkdir()
    vocabulary, merges = byte_vocabulary()
    _write(path / "vocab.json", vocabulary)
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    _write(path / "tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer", "model_max_length": STEPS})
    config = {"model_type": "roberta", "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    config |= {"vocab_size": len(vocabulary), "layer_norm_eps": 1e-5, "type_vocab_size": 1}
    _write_encoder(path, config | {"max_position_embeddings": STEPS + 2}, positions=STEPS + 2, segments=1)
    return path


def write_xlm_roberta_checkpoint(path: Path) -> Path:
    path.mkdir()
    settings = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2, "vocab_size": 80}
    (path / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(**settings))
    _write(path / "tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": STEPS})
    config = {"model_type": "xlm-roberta", "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    config |= {"vocab_size": 90, "layer_norm_eps": 1e-5, "type_vocab_size": 1}
    _write_encoder(path, config | {"max_position_embeddings": STEPS + 2}, positions=STEPS + 2, segments=1)
    return path


def write_small_e5_checkpoint(path: Path) -> Path:
    """A BERT with the tokenizer of XLM-R, as multilingual-e5-small."""
    write_xlm_roberta_checkpoint(path)
    config = {"model_type": "bert", "vocab_size": 90, "max_position_embeddings": STEPS, "pad_token_id": 0}
    _write_encoder(path, config, positions=STEPS, segments=2)
    return path


#: Name of the image tower of `write_open_clip_siglip`; timm has no SigLIP as small.
TRUNK = f"vit_tiny_patch{PATCH}_siglip_{SIZE}"


def write_open_clip(checkpoint: Path, path: Path, custom_text: bool = False) -> Path:
    """Writes a tiny CLIP or MetaCLIP 2 of transformers with the names of open_clip."""
    config = json.loads((checkpoint / "config.json").read_text())
    texts = {"width": WIDTH, "heads": 2, "layers": LAYERS, "mlp_ratio": 2.0, "context_length": 24}
    texts["vocab_size"] = config["text_config"]["vocab_size"]
    if config["model_type"] == "metaclip_2":
        texts |= {"pool_type": "eos", "eos_id": 2, "hf_tokenizer_name": "facebook/xlm-v-base"}
    images = {"width": WIDTH, "head_width": WIDTH // 2, "layers": LAYERS, "mlp_ratio": 2.0}
    images |= {"image_size": SIZE, "patch_size": PATCH}
    model = {"embed_dim": DIM, "vision_cfg": images, "text_cfg": texts, "custom_text": custom_text}
    model["quick_gelu"] = config["text_config"].get("hidden_act", "quick_gelu") == "quick_gelu"
    pixels = {"mean": _MEAN, "std": _DEVIATION, "interpolation": "bicubic", "resize_mode": "shortest"}
    before = "text." if custom_text else ""
    weights = _read_weights(checkpoint)
    named = {
        "logit_scale": weights["logit_scale"],
        "visual.class_embedding": weights["vision_model.embeddings.class_embedding"],
        "visual.conv1.weight": weights["vision_model.embeddings.patch_embedding.weight"],
        "visual.positional_embedding": weights["vision_model.embeddings.position_embedding.weight"],
        "visual.proj": weights["visual_projection.weight"].T,
        f"{before}text_projection": weights["text_projection.weight"].T,
        **_open_clip_blocks(weights, "vision_model", "visual.transformer"),
        **_open_clip_texts(weights, before),
    }
    for old, new in (("pre_layrnorm", "ln_pre"), ("post_layernorm", "ln_post")):
        named |= _moved(weights, f"vision_model.{old}", f"visual.{new}")
    return _write_open_clip(checkpoint, path, model, pixels, named)


def write_open_clip_siglip(checkpoint: Path, path: Path) -> Path:
    """Writes a tiny SigLIP of transformers with the names of open_clip and timm."""
    config = json.loads((checkpoint / "config.json").read_text())
    processor = json.loads((checkpoint / "preprocessor_config.json").read_text())
    images = {"image_size": SIZE, "timm_model_name": TRUNK, "timm_pool": "map", "timm_proj": "none"}
    texts = {"width": WIDTH, "heads": 2, "layers": LAYERS, "mlp_ratio": 2.0, "context_length": 20}
    texts |= {"vocab_size": config["text_config"]["vocab_size"], "hf_tokenizer_name": "timm/ViT-B-16-SigLIP"}
    texts |= {"no_causal_mask": True, "proj_bias": True, "pool_type": "last", "norm_kwargs": {"eps": 1e-6}}
    texts |= {"act_kwargs": {"approximate": "tanh"}, "tokenizer_kwargs": {"clean": "canonicalize"}}
    model = {"embed_dim": WIDTH, "init_logit_bias": -10, "custom_text": True, "vision_cfg": images, "text_cfg": texts}
    pixels = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
    pixels["interpolation"] = {2: "bilinear", 3: "bicubic"}[processor["resample"]]
    weights = _read_weights(checkpoint)
    head, pool = "vision_model.head", "visual.trunk.attn_pool"
    named = {
        "logit_scale": weights["logit_scale"],
        "logit_bias": weights["logit_bias"],
        "visual.trunk.pos_embed": weights["vision_model.embeddings.position_embedding.weight"][None],
        f"{pool}.latent": weights[f"{head}.probe"],
        **_moved(weights, "vision_model.embeddings.patch_embedding", "visual.trunk.patch_embed.proj"),
        **_moved(weights, "vision_model.post_layernorm", "visual.trunk.norm"),
        **_moved(weights, f"{head}.attention.out_proj", f"{pool}.proj"),
        **_moved(weights, f"{head}.layernorm", f"{pool}.norm"),
        **_moved(weights, f"{head}.mlp.fc1", f"{pool}.mlp.fc1"),
        **_moved(weights, f"{head}.mlp.fc2", f"{pool}.mlp.fc2"),
        **_moved(weights, "text_model.head", "text.text_projection"),
        **_open_clip_texts(weights, "text."),
    }
    for kind in ("weight", "bias"):
        joined = weights[f"{head}.attention.in_proj_{kind}"]
        named |= {f"{pool}.q.{kind}": joined[:WIDTH], f"{pool}.kv.{kind}": joined[WIDTH:]}
    for name, value in _open_clip_blocks(weights, "vision_model", "visual.trunk").items():
        for old, new in (
            ("resblocks", "blocks"),
            (".ln_", ".norm"),
            ("attn.in_proj_", "attn.qkv."),
            ("attn.out_proj", "attn.proj"),
            ("mlp.c_fc", "mlp.fc1"),
            ("mlp.c_proj", "mlp.fc2"),
        ):
            name = name.replace(old, new)
        named[name] = value
    return _write_open_clip(checkpoint, path, model, pixels, named)


def _write_open_clip(checkpoint: Path, path: Path, model: dict, pixels: dict, weights: dict[str, np.ndarray]) -> Path:
    from safetensors.numpy import save_file

    others = shutil.ignore_patterns("config.json", "preprocessor_config.json", "model.safetensors")
    shutil.copytree(checkpoint, path, ignore=others)
    _write(path / "open_clip_config.json", {"model_cfg": model, "preprocess_cfg": pixels})
    whole = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    save_file(whole, str(path / "open_clip_model.safetensors"), metadata={"format": "pt"})
    return path


def _read_weights(checkpoint: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(checkpoint / "model.safetensors")


def _open_clip_texts(weights: dict[str, np.ndarray], before: str) -> dict[str, np.ndarray]:
    return {
        f"{before}token_embedding.weight": weights["text_model.embeddings.token_embedding.weight"],
        f"{before}positional_embedding": weights["text_model.embeddings.position_embedding.weight"],
        **_moved(weights, "text_model.final_layer_norm", f"{before}ln_final"),
        **_open_clip_blocks(weights, "text_model", f"{before}transformer"),
    }


def _open_clip_blocks(weights: dict[str, np.ndarray], tower: str, place: str) -> dict[str, np.ndarray]:
    named = {}
    for number in range(LAYERS):
        old, new = f"{tower}.encoder.layers.{number}", f"{place}.resblocks.{number}"
        for kind in ("weight", "bias"):
            parts = [weights[f"{old}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
            named[f"{new}.attn.in_proj_{kind}"] = np.concatenate(parts)
        named |= _moved(weights, f"{old}.self_attn.out_proj", f"{new}.attn.out_proj")
        named |= _moved(weights, f"{old}.layer_norm1", f"{new}.ln_1")
        named |= _moved(weights, f"{old}.layer_norm2", f"{new}.ln_2")
        named |= _moved(weights, f"{old}.mlp.fc1", f"{new}.mlp.c_fc")
        named |= _moved(weights, f"{old}.mlp.fc2", f"{new}.mlp.c_proj")
    return named


def _moved(weights: dict[str, np.ndarray], old: str, new: str) -> dict[str, np.ndarray]:
    return {f"{new}.{kind}": weights[f"{old}.{kind}"] for kind in ("weight", "bias")}


def word_pieces() -> list[str]:
    """Subwords as BERT's: letters of several scripts, beginning and continuing words, and parts of the corpus."""
    letters = sorted(
        {*"".join(CORPUS).lower(), *"abcdefghijklmnopqrstuvwxyz0123456789.,!?'-_()<>/@[]ñßıعमह日本語🙂"} - {" "}
    )
    parts = ["the", "dog", "photo", "##og", "##s", "##ing", "run", "cir", "##cle", "query", "passage", ":", "½"]
    # Published vocabularies have the padding first and other names at 100.
    names = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return list(dict.fromkeys([*names, *letters, *(f"##{letter}" for letter in letters), *parts]))


def gemma_tokenizer() -> dict:
    """A `tokenizer.json` with the structure of Gemma's, with merges of the corpus, spaces and line feeds."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    added = [*names, "<h1>", "[@BOS@]"]
    pieces = [
        *added,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\n",
        "▁",
        *sorted(set("".join(CORPUS).lower()) - {" "}),
    ]
    merges = [("▁", "▁"), ("\n", "\n")]
    pieces += ["▁▁", "\n\n"]
    for word in " ".join(CORPUS).lower().split():
        parts = ["▁", *word]
        while len(parts) > 1:
            joined = parts[0] + parts[1]
            if joined not in pieces:
                pieces.append(joined)
                merges.append((parts[0], parts[1]))
            parts = [joined, *parts[2:]]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary[name], "content": name, **plain, "special": name in names} for name in added
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Lowercase"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<eos>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<eos>": {"id": "<eos>", "ids": [1], "tokens": ["<eos>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def unigram_tokenizer(model: bytes, xlm: bool) -> dict:
    """A `tokenizer.json` as the transformers library writes it for a model of sentencepiece, in its order for XLM."""
    import sentencepiece

    from vsemb.systems.presets.subwords import _fields

    read = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [[read.id_to_piece(number), read.get_score(number)] for number in range(len(read))]
    names = [piece for number, (piece, _) in enumerate(pieces) if read.is_control(number) or read.is_unknown(number)]
    if xlm:
        names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        pieces = [*([name, 0.0] for name in names[:4]), *pieces[3:], ["<mask>", 0.0]]
    order = [piece for piece, _ in pieces]
    (normalizer,) = (value for number, value in _fields(model) if number == 3)
    charsmap = base64.b64encode(dict(_fields(normalizer))[2]).decode()
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "added_tokens": [{"id": order.index(name), "content": name, "special": True} for name in names],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "model": {"type": "Unigram", "unk_id": order.index("<unk>"), "vocab": pieces, "byte_fallback": False},
    }


def _write_clip_network(path: Path, kind: str, words: int, ends: dict[str, int]) -> None:
    tower = {"hidden_size": WIDTH, "intermediate_size": INSIDE, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    tower["projection_dim"] = DIM
    texts = tower | {"vocab_size": words, "max_position_embeddings": 24, **ends}
    images = tower | {"image_size": SIZE, "patch_size": PATCH}
    _write(
        path / "config.json",
        {"model_type": kind, "projection_dim": DIM, "text_config": texts, "vision_config": images},
    )
    # Old files say the size of the shorter side with one number.
    processor = {"image_processor_type": "CLIPImageProcessor", "size": SIZE, "crop_size": SIZE, "do_center_crop": True}
    _write(path / "preprocessor_config.json", processor | {"resample": 3, "image_mean": _MEAN, "image_std": _DEVIATION})
    shapes = {
        "logit_scale": (),
        "text_projection.weight": (DIM, WIDTH),
        "visual_projection.weight": (DIM, WIDTH),
        "vision_model.embeddings.class_embedding": (WIDTH,),
        "vision_model.embeddings.patch_embedding.weight": (WIDTH, 3, PATCH, PATCH),
        "vision_model.embeddings.position_embedding.weight": ((SIZE // PATCH) ** 2 + 1, WIDTH),
        "text_model.embeddings.token_embedding.weight": (words, WIDTH),
        "text_model.embeddings.position_embedding.weight": (24, WIDTH),
        **_norm("vision_model.pre_layrnorm"),
        **_norm("vision_model.post_layernorm"),
        **_norm("text_model.final_layer_norm"),
        **_layers("vision_model"),
        **_layers("text_model"),
    }
    _write_weights(path, shapes, {"logit_scale": np.log(100.0)})


def _write_siglip_network(path: Path, words: int, resample: int) -> None:
    tower = {"hidden_size": WIDTH, "intermediate_size": INSIDE, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    texts = tower | {"vocab_size": words, "max_position_embeddings": 20, "projection_size": WIDTH}
    images = tower | {"image_size": SIZE, "patch_size": PATCH}
    _write(path / "config.json", {"model_type": "siglip", "text_config": texts, "vision_config": images})
    processor = {"image_processor_type": "SiglipImageProcessor", "size": {"height": SIZE, "width": SIZE}}
    processor |= {"resample": resample, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "rescale_factor": 1 / 255}
    _write(path / "preprocessor_config.json", processor)
    head = "vision_model.head"
    shapes = {
        "logit_scale": (1,),
        "logit_bias": (1,),
        "vision_model.embeddings.patch_embedding.weight": (WIDTH, 3, PATCH, PATCH),
        "vision_model.embeddings.patch_embedding.bias": (WIDTH,),
        "vision_model.embeddings.position_embedding.weight": ((SIZE // PATCH) ** 2, WIDTH),
        "text_model.embeddings.token_embedding.weight": (words, WIDTH),
        "text_model.embeddings.position_embedding.weight": (20, WIDTH),
        **_norm("vision_model.post_layernorm"),
        **_norm("text_model.final_layer_norm"),
        **_dense("text_model.head", WIDTH, WIDTH),
        f"{head}.probe": (1, 1, WIDTH),
        f"{head}.attention.in_proj_weight": (3 * WIDTH, WIDTH),
        f"{head}.attention.in_proj_bias": (3 * WIDTH,),
        **_dense(f"{head}.attention.out_proj", WIDTH, WIDTH),
        **_norm(f"{head}.layernorm"),
        **_dense(f"{head}.mlp.fc1", WIDTH, INSIDE),
        **_dense(f"{head}.mlp.fc2", INSIDE, WIDTH),
        **_layers("vision_model"),
        **_layers("text_model"),
    }
    _write_weights(path, shapes, {"logit_scale": np.log(117.3), "logit_bias": -12.9})


def _write_encoder(path: Path, config: dict, positions: int, segments: int) -> None:
    sizes = {"hidden_size": WIDTH, "intermediate_size": INSIDE, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    _write(path / "config.json", config | sizes)
    shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], WIDTH),
        "embeddings.position_embeddings.weight": (positions, WIDTH),
        "embeddings.token_type_embeddings.weight": (segments, WIDTH),
        **_norm("embeddings.LayerNorm"),
        **_dense("pooler.dense", WIDTH, WIDTH),
    }
    for number in range(LAYERS):
        name = f"encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _dense(f"{name}.attention.{part}", WIDTH, WIDTH)
        shapes |= _norm(f"{name}.attention.output.LayerNorm") | _norm(f"{name}.output.LayerNorm")
        shapes |= _dense(f"{name}.intermediate.dense", WIDTH, INSIDE) | _dense(f"{name}.output.dense", INSIDE, WIDTH)
    _write_weights(path, shapes, {})


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _layers(tower: str) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for number in range(LAYERS):
        name = f"{tower}.encoder.layers.{number}"
        shapes |= _norm(f"{name}.layer_norm1") | _norm(f"{name}.layer_norm2")
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _dense(f"{name}.self_attn.{part}", WIDTH, WIDTH)
        shapes |= _dense(f"{name}.mlp.fc1", WIDTH, INSIDE) | _dense(f"{name}.mlp.fc2", INSIDE, WIDTH)
    return shapes


def _write_weights(path: Path, shapes: dict[str, tuple[int, ...]], fixed: dict[str, float]) -> None:
    """Draw weights so large that different inputs have clearly different outputs."""
    from safetensors.numpy import save_file

    random, weights = np.random.default_rng(0), {}
    for name, shape in sorted(shapes.items()):
        drawn = random.normal(size=shape) * (0.3 if len(shape) > 1 else 0.1)
        drawn += 1.0 if "norm" in name.lower() and name.endswith(".weight") else 0.0
        weights[name] = np.full(shape, fixed.get(name, drawn), np.float32)
    save_file(weights, str(path / "model.safetensors"), metadata={"format": "pt"})


def _write(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content))


CHECKPOINTS = {
    "clip": write_clip_checkpoint,
    "metaclip-2": write_metaclip2_checkpoint,
    "siglip": write_siglip_checkpoint,
    "siglip-2": write_siglip2_checkpoint,
}

#: Text networks without images.
ENCODERS = {
    "bert": write_bert_checkpoint,
    "roberta": write_roberta_checkpoint,
    "xlm-roberta": write_xlm_roberta_checkpoint,
    "small-e5": write_small_e5_checkpoint,
}
