"""Beam pipelines on the command line: options, progress, and errors on one line."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from pipelines.beam.storage import need_beam
from vsemb.errors import DataError, VsembError, one_line

if TYPE_CHECKING:
    import apache_beam as beam

#: Names of the default `--runner`: Beam's runner in Python. Beam itself would download another runner for
#: DirectRunner.
LOCAL = ("directrunner", "direct", "fnapirunner")

RUNNER_HELP = """Whatever else is given is for Apache Beam. By default everything runs in this process; in
more processes, or on a cluster, with:
  --direct_running_mode multi_processing --direct_num_workers 8
  --runner Dataflow --project P --region R --temp_location gs://BUCKET/tmp --sdk_container_image IMAGE
  --runner Flink --flink_master HOST:8081 --environment_type DOCKER --environment_config IMAGE
  --runner Spark --spark_master_url spark://HOST:7077 --environment_type DOCKER --environment_config IMAGE
  --runner apache_beam.runners.dask.dask_runner.DaskRunner --dask_client_address tcp://HOST:8786 \
      --dask_partition_size 1
IMAGE is Beam's image of this Python with vsemb[beam] and pipelines/ in it, and all paths and URIs must mean
the same to every worker."""


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Parse a job's arguments; the others must be options of Beam, if it is installed.

    Args:
        parser: parser of the job, created with `allow_abbrev=False`.
        argv: the arguments.

    Returns:
        The job's arguments and the options of Beam.
    """
    arguments, rest = parser.parse_known_args(argv)
    with contextlib.suppress(ImportError):
        unknown = _unknown(rest)
        if unknown:
            parser.error(f"unrecognized arguments, by Apache Beam too: {' '.join(unknown)}")
    return arguments, rest


def _unknown(flags: list[str]) -> list[str]:
    need_beam()
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
    from apache_beam.runners.runner import create_runner

    # The module of a runner declares the runner's options.
    runner = PipelineOptions(flags).view_as(StandardOptions).runner
    if runner is not None:
        with contextlib.suppress(ValueError):
            create_runner(runner)
    # Beam itself ignores unknown options, including misspelt ones.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for kind in {str(kind): kind for kind in PipelineOptions.__subclasses__()}.values():
        with contextlib.suppress(argparse.ArgumentError):
            kind._add_argparse_args(parser)
    return parser.parse_known_args(flags)[1]


def run_pipeline(
    build: Callable[[beam.Pipeline], Any],
    flags: Sequence[str],
    *,
    watch: Callable[[], int],
    total: int,
    unit: str,
    name: str,
) -> None:
    """Run a pipeline until it ends.

    Args:
        build: function that adds the job's steps to a pipeline.
        flags: options of Beam.
        watch: function that returns the number of finished units, for the progress bar.
        total: total number of units.
        unit: name of the unit.
        name: name of the activity.

    Raises:
        DataError: if the pipeline fails, with the reason.
        MissingExtraError: if Beam is not installed.
    """
    need_beam()
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
    from apache_beam.runners.runner import PipelineState

    options = PipelineOptions(list(flags))
    wanted = options.view_as(StandardOptions).runner
    local = wanted is None or wanted.lower() in LOCAL
    with _local_surroundings() if local else contextlib.nullcontext():
        try:
            runner = _local_runner(options) if local else _named_runner(wanted)
            pipeline = beam.Pipeline(runner=runner, options=options)
            build(pipeline)
            with _progress(watch, total, unit, name, seconds=1.0 if local else 30.0):
                result = pipeline.run()
                state = result.wait_until_finish() or result.state
        except VsembError:
            raise
        except Exception as error:
            raise DataError(f"The Beam job failed: {_reason(error)}") from error
    if state not in (None, PipelineState.DONE):
        raise DataError(f"The Beam job ended as {state}; its runner says why.")


def _reason(error: Exception) -> str:
    """Return the reason of a failure without the worker's traceback."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    told = [line for line in lines if "[while running" in line]
    line = (told or lines[-1:] or [type(error).__name__])[-1]
    return one_line(line.split(" [while running")[0].removeprefix("vsemb.errors."))


def _named_runner(name: str) -> Any:
    from apache_beam.runners.runner import create_runner

    try:
        return create_runner(name)
    except ImportError as error:
        raise DataError(
            f"The runner {name} must be installed: {one_line(error)}. Dask's comes with pip install 'vsemb[dask]'."
        ) from error


def _local_runner(options: Any) -> Any:
    from apache_beam.options.pipeline_options import WorkerOptions
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    worker = options.view_as(WorkerOptions)
    worker.default_sdk_harness_log_level = worker.default_sdk_harness_log_level or "CRITICAL"
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provided = fn_runner.ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded))
    return fn_runner.FnApiRunner(provision_info=provided)


@contextlib.contextmanager
def _local_surroundings() -> Iterator[None]:
    """Disable Beam's log, and make `pipelines` importable in child processes from any working directory."""
    level, path = logging.root.manager.disable, os.environ.get("PYTHONPATH")
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *([path] if path else [])])
    # Errors also arrive as exceptions, and are printed on one line.
    logging.disable(max(level, logging.ERROR))
    try:
        yield
    finally:
        logging.disable(level)
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path


@contextlib.contextmanager
def _progress(watch: Callable[[], int], total: int, unit: str, name: str, seconds: float) -> Iterator[None]:
    done = threading.Event()
    bar = tqdm(desc=name, total=total, unit=unit, disable=None)

    def look() -> None:
        while not done.wait(seconds):
            with contextlib.suppress(Exception):  # An error here must not stop the job.
                bar.n = watch()
                bar.refresh()

    # Without a terminal the bar is not visible, and listing a store costs money.
    looking = threading.Thread(target=look, name="progress", daemon=True)
    if not bar.disable:
        looking.start()
    try:
        yield
        bar.n = total
    finally:
        done.set()
        if not bar.disable:
            looking.join()
        bar.close()
