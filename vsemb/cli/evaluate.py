"""Measure a run.

Retrieval: recall at 1, 5 and 10, median and mean rank, from images to texts and back. With --pairs a second
table stands below, of pairs of an image and one text as in the report of imgcap: here the first text of each
image and no other, so that both directions rank as many candidates as there are pairs. Figures of the two
tables do not compare.

Entailment: accuracy of two classes at the threshold that is best on the validation split, average precision
and area under ROC.

With --zero-shot: images are recognised among the classes of a split by the texts of these, and the classes'
images retrieved (Reed et al. 2016). A tie counts against the model everywhere.

With --pointing, for a run on regions: the words of captions choose regions of their image, and a word is
right where its region overlaps what it names with an intersection over union of 0.5 or more. The data must
know which words name which objects, as those of `vsemb scenes` do.

With --captions, for runs that write captions: BLEU, METEOR, ROUGE-L and CIDEr-D as the evaluation of COCO
captions defines them, and how many captions are new; beside the caption of the nearest training image. On
scenes, also how many captions are true of their picture. With --perplexity, for these and for language
models: how well they foresee the captions of a split.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.systems.captions.evaluate_command import CAPTIONS, add_captions, run_captions, run_perplexity
from vsemb.systems.trees.parser_option import add_parser, use_parser

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.recognition import ZeroShotTask

EXAMPLE = """  vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json
  vsemb evaluate runs/coco --data data/coco --split test --folds 5
  vsemb evaluate runs/tree --split test --pairs 1000 --recalls 1 5 10 20 50
  vsemb evaluate runs/snli --split test
  vsemb evaluate runs/ds-sje --zero-shot --split test --curve --typos 0 0.05 0.1
  vsemb evaluate runs/dvsa --data data/scenes --split test --pointing
  vsemb evaluate runs/captions --captions --beside runs/sc-nlm --examples 5
  vsemb evaluate runs/sc-nlm --perplexity --beside runs/multiplicative runs/log-bilinear"""

# What goes with --zero-shot alone, with --pointing alone, and without them: argument -> its default.
_ZERO_SHOT = {"curve": False, "typos": None, "top": None, "seen": False, "seed": None, "picture": None}
_POINTING = {"affinity": None}
_RETRIEVAL = {"folds": 1, "bootstrap": 0, "recalls": None, "pairs": None}
_BESIDE: dict[str, Any] = {"beside": []}
_TOP = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", default="val", help="the split to measure on (%(default)s)")
    parser.add_argument("--folds", type=int, default=1, help="average over so many contiguous parts of the images (1)")
    parser.add_argument(
        "--bootstrap", type=int, default=0, metavar="N", help="95 %% intervals from N resamplings (0: none)"
    )
    parser.add_argument("--recalls", type=int, nargs="+", metavar="K", help="recall at these K too, beside 1, 5 and 10")
    parser.add_argument(
        "--pairs",
        type=int,
        nargs="?",
        const=True,
        metavar="N",
        help="also measure the first N images (all of them), each with its first text, without folds",
    )
    add_parser(parser)
    parser.add_argument("--json", metavar="FILE", help="also write what was measured to FILE as JSON")
    group = parser.add_argument_group("zero-shot recognition")
    group.add_argument("--zero-shot", action="store_true", help="recognise classes by their texts")
    group.add_argument("--curve", action="store_true", help="with 1, 2, 4, ..., 128 texts a class too, ten draws each")
    group.add_argument(
        "--typos", type=float, nargs="+", metavar="SHARE", help="mistype so many of the texts' characters (0)"
    )
    group.add_argument("--top", type=int, metavar="K", help=f"images looked at for each class ({_TOP})")
    group.add_argument("--seen", action="store_true", help="allow classes that were trained on")
    group.add_argument("--seed", type=int, help="of draws, typing errors and the picture (0)")
    group.add_argument("--picture", metavar="FILE.png", help="draw the classes, near ones together")
    group = parser.add_argument_group("pointing at regions")
    group.add_argument("--pointing", action="store_true", help="do words choose the regions that they name?")
    group.add_argument(
        "--affinity",
        type=float,
        nargs="+",
        metavar="BETA",
        help="how much neighbouring words gain by choosing one region (0 and a few, from the scores on val); "
        "the best on val is marked",
    )
    add_captions(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.cli.tables import entailment_table, retrieval_table
    from vsemb.data.store import Dataset
    from vsemb.errors import DataError, invalid_argument
    from vsemb.files import write_json
    from vsemb.runs.measure import evaluate_run
    from vsemb.runs.tasks import open_run
    from vsemb.systems.captions.caption_run import CaptionRun
    from vsemb.systems.entailment.run import EntailmentRun, evaluate_entailment_run
    from vsemb.systems.language.language_run import LanguageRun

    _refuse_mixed(arguments)
    if arguments.captions:
        return run_captions(arguments)
    if arguments.perplexity:
        return run_perplexity(arguments)
    opened = open_run(arguments.run)
    if isinstance(opened, CaptionRun | LanguageRun):
        raise DataError(
            f"{opened.path} is a run of the recipe {opened.recipe.name!r}, which embeds nothing: add "
            "--captions to measure the captions it writes, or --perplexity."
        )
    use_parser(arguments, opened)
    measured: dict[str, Any]
    task: ZeroShotTask | None = None
    if isinstance(opened, EntailmentRun):
        if arguments.zero_shot:
            raise invalid_argument("zero_shot", True, "False for an entailment run", "It knows no images.")
        if arguments.pointing:
            raise invalid_argument("pointing", True, "False for an entailment run", "It knows no images.")
        _refuse(arguments, _RETRIEVAL, "for an entailment run")
        data = opened.open_data(arguments.data)
        metrics = evaluate_entailment_run(opened, data, arguments.split)
        measured = metrics.to_json()
        print(f"{entailment_table(metrics, arguments.split)}\n\n{data.protocol}")
    else:
        dataset = Dataset.open(arguments.data or opened.data_path)
        if arguments.zero_shot:
            task = _zero_shot_task(arguments, opened, dataset)
            measured = _zero_shot(arguments, task)
        elif arguments.pointing:
            measured = _pointing(arguments, opened, dataset)
        else:
            # Without a number it is all of them.
            every = arguments.pairs is True
            found = evaluate_run(
                opened,
                dataset,
                arguments.split,
                folds=arguments.folds,
                bootstrap=arguments.bootstrap,
                recalls=arguments.recalls or (),
                pairs=len(dataset.split(arguments.split)) if every else arguments.pairs,
            )
            measured = found.to_json()
            print(retrieval_table(found))
    if arguments.json:
        write_json(arguments.json, measured)
    # Last, so that nothing measured is lost with it.
    if task is not None and arguments.picture is not None:
        task.draw(arguments.picture, seed=arguments.seed or 0)
        print(f"\n{arguments.picture}: the {len(task.names)} classes")
    return 0


def _refuse_mixed(arguments: argparse.Namespace) -> None:
    """Refuses what does not go with what is to be measured."""
    if arguments.captions or arguments.perplexity:
        measured = "--captions" if arguments.captions else "--perplexity"
        tasks = {"perplexity": False} if arguments.captions else CAPTIONS
        tasks = {**tasks, "zero_shot": False, "pointing": False, "parser": None}
        _refuse(arguments, {**tasks, **_ZERO_SHOT, **_POINTING, **_RETRIEVAL}, f"with {measured}")
        return
    _refuse(arguments, CAPTIONS, "without --captions")
    _refuse(arguments, _BESIDE, "without --captions or --perplexity")
    if arguments.pointing:
        # Intervals are of pointing too.
        others = {name: default for name, default in _RETRIEVAL.items() if name != "bootstrap"}
        _refuse(arguments, {"zero_shot": False, **_ZERO_SHOT, **others}, "with --pointing")
        return
    _refuse(arguments, _POINTING, "without --pointing")
    if arguments.zero_shot:
        _refuse(arguments, _RETRIEVAL, "with --zero-shot")
    else:
        _refuse(arguments, _ZERO_SHOT, "without --zero-shot")


def _refuse(arguments: argparse.Namespace, defaults: dict[str, Any], where: str) -> None:
    from vsemb.errors import invalid_argument

    for name, default in defaults.items():
        if getattr(arguments, name) != default:
            allowed = "nothing" if default is None or default is False or default == [] else str(default)
            raise invalid_argument(name, getattr(arguments, name), f"{allowed} {where}")


def _zero_shot_task(arguments: argparse.Namespace, opened: Run, dataset: Dataset) -> ZeroShotTask:
    """Refuses what cannot be measured or drawn before anything is."""
    from vsemb.errors import invalid_argument
    from vsemb.systems.zero_shot.class_names import ClassTokenizer
    from vsemb.systems.zero_shot.metrics import check_seed
    from vsemb.systems.zero_shot.recognition import ZeroShotTask

    shares = arguments.typos or []
    wrong = [share for share in shares if not 0 <= share <= 1]
    if wrong:
        raise invalid_argument("typos", wrong[0], "shares from 0 to 1")
    if any(shares) and isinstance(opened.tokenizer, ClassTokenizer):
        fix = "It reads no text, so there is nothing to mistype."
        raise invalid_argument("typos", max(shares), "0 for a run on attributes", fix)
    check_seed(arguments.seed or 0)
    task = ZeroShotTask(opened, dataset, arguments.split, seen=arguments.seen)
    if arguments.picture is not None:
        task.check_drawable(arguments.picture)
    return task


def _zero_shot(arguments: argparse.Namespace, task: ZeroShotTask) -> dict[str, Any]:
    """Measures and prints; returns what is written as JSON."""
    from vsemb.cli.tables import zero_shot_table

    seed = arguments.seed or 0
    shares = [0.0] if arguments.typos is None else arguments.typos
    top = _TOP if arguments.top is None else arguments.top
    measured = {share: task.measure(corrupt=share, curve=arguments.curve, top=top, seed=seed) for share in shares}
    print(zero_shot_table(measured, arguments.split, task.seen))
    rows = [{"typos": share, **metrics.to_json()} for share, metrics in measured.items()]
    return {"split": arguments.split, "classes_seen": task.seen, "measured": rows}


def _pointing(arguments: argparse.Namespace, opened: Run, dataset: Dataset) -> dict[str, Any]:
    """Measures and prints; returns what is written as JSON."""
    from vsemb.cli.tables import pointing_table
    from vsemb.systems.regions.pointing import measure_pointing

    metrics, chosen = measure_pointing(
        opened, dataset, arguments.split, affinities=arguments.affinity, bootstrap=arguments.bootstrap
    )
    print(pointing_table(metrics, arguments.split, chosen))
    return {"split": arguments.split, "affinity_chosen_on_val": chosen, **metrics.to_json()}
