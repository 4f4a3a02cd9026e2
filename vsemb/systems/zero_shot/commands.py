"""Commands for classes: `vsemb classify`, options of `export`, modes of `evaluate` and `scenes`."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import Any

from vsemb.commands import Command, add_options, apply_options, open_keys
from vsemb.console import say
from vsemb.printing import save_json, say_images, table

_TOP, _SPLIT = 5, "test"


def _configure_classes(parser: argparse._ActionsContainer) -> None:
    group = parser.add_argument_group("classes")
    group.add_argument("--classes", nargs="+", metavar="NAME", help="names of the classes")
    group.add_argument("--classes-file", metavar="FILE", help="file with one class name per line")
    template = "prompt with {} for the name; repeatable (the name alone)"
    group.add_argument("--template", action="append", default=[], metavar="TEXT", help=template)


def _chosen_classes(arguments: argparse.Namespace) -> list[str] | None:
    """Return the class names of the command line, or None.

    Raises:
        VsembError: for names from two sources, templates without names, or an unreadable file.
    """
    from vsemb.errors import invalid_argument
    from vsemb.systems.zero_shot.classify import read_classes

    if arguments.classes is not None and arguments.classes_file is not None:
        raise invalid_argument("classes_file", arguments.classes_file, "None together with --classes")
    if arguments.classes_file is not None:
        return read_classes(arguments.classes_file)
    if arguments.classes is None and arguments.template:
        raise invalid_argument("template", arguments.template, "None without --classes or --classes-file")
    if arguments.classes is not None and len(arguments.classes) == 1 and "," in arguments.classes[0]:
        names = [name.strip() for name in arguments.classes[0].split(",")]
        raise invalid_argument("classes", arguments.classes[0], f"names separated by spaces: {shlex.join(names)}")
    return arguments.classes


def _configure_classify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="the run directory")
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="image files, or keys of images in the dataset")
    _configure_classes(parser)
    parser.add_argument("--top", type=int, metavar="N", help=f"classes shown per image ({_TOP})")
    parser.add_argument("--data", help="dataset (the training dataset)")
    parser.add_argument("--split", help=f"split to classify if no image is given ({_SPLIT})")
    add_options(parser, "run")
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON to FILE")


def _classify(arguments: argparse.Namespace) -> int:
    """Classify images by class names with any run, without training.

    The prompts of a class are its name in each template; its score is the mean of their scores. Probabilities are the
    softmax of the scores times the run's logit scale. Classes without a known word are skipped with a warning. Without
    images, a whole split is classified and compared with its class labels, if any.

    Examples:
      vsemb classify runs/vsepp rex.jpg tom.jpg --classes dog cat --template "a photo of a {}"
      vsemb classify runs/vsepp --classes-file classes.txt --split test --json found.json
    """
    from vsemb.errors import invalid_argument
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.classify import classify_images, classify_split, embed_classes

    names = _chosen_classes(arguments)
    if names is None:
        raise invalid_argument("classes", None, "class names, as --classes or --classes-file")
    if arguments.images and arguments.split is not None:
        raise invalid_argument("split", arguments.split, "None together with images")
    if not arguments.images and arguments.top is not None:
        raise invalid_argument("top", arguments.top, "None without images")
    opened = Run.open(arguments.run, "retrieval")
    apply_options(arguments, opened, "run")
    prompts = embed_classes(opened, names, arguments.template, report=say)
    measured: dict[str, Any]
    if arguments.images:
        dataset = open_keys(opened, arguments.data, ())
        top = _TOP if arguments.top is None else arguments.top
        images = classify_images(opened, arguments.images, prompts, dataset, top=top)
        cells = [
            [(name, f"{score:.3f}", f"{each.probabilities[name]:.3f}") for name, score in each.scores.items()]
            for each in images
        ]
        status = say_images("classify", images, ("class", "score", "probability"), cells)
        how = f"{prompts.scale:.3g} x score" if prompts.scale != 1 else "the scores, since the run has no logit scale"
        print(f"\nprobability: softmax of {how}")
        measured = {"images": [result.to_json() for result in images]}
    else:
        found = classify_split(opened, opened.open_data(arguments.data), arguments.split or _SPLIT, prompts)
        rows = sorted(found.counts.items(), key=lambda item: -item[1])
        print(table(["class", "images"], [[name, str(count)] for name, count in rows]))
        if found.accuracy is not None:
            print(
                f"\naccuracy {found.accuracy:.1f} % (mean over classes), {found.accuracy_images:.1f} % (plain), "
                f"over {found.labelled} of {found.images} images, whose class is among these"
            )
        measured, status = asdict(found), 0
    templates = arguments.template or ["{}"]
    classes = {"classes": list(prompts.names), "skipped": list(prompts.skipped), "scale": prompts.scale}
    save_json(arguments, {**classes, "templates": templates, **measured})
    return status


CLASSIFY = Command(_classify, _configure_classify)
