"""The embedded server under load, and what a SavedModel costs beside the Keras model that it was made of.

    python -m tests.benchmarks.serving [--model savedmodels/NAME] [--run RUN] [--requests 2000] [--clients 8]

Load: a server in a process of its own, half of the clients over gRPC and half over REST, a fixed count of
requests: single texts, texts by eights and images, one in ten malformed. Every answer is kept and checked
afterwards: its status, and its embedding against the SavedModel's own in this process. A lost or wrong answer
ends the benchmark with status 1. With merging of requests into batches and without, in turns.

Over REST: good requests of single texts, from 8 and from 64 clients in a process of their own, beside the same
SavedModel behind a plain handler of aiohttp, and behind TensorFlow Serving's own server where it is on PATH. Every
server has a process of its own, and every answer is checked likewise.

Latency: `encode_text` at batch 1 and 64 in this process, five ways in turns, as ratios to the signature.

Without --model and --run those of the quickstart are taken, or where there is none a small run is trained.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import urllib3

from pipelines.quickstart import SETTINGS
from tests.benchmarks import plain_server
from tests.benchmarks.processes import MODEL_SERVER, in_process, model_server
from tests.benchmarks.serving_cases import Answer, Case, make_cases, wrong
from tests.benchmarks.serving_latency import measure_latency
from tests.benchmarks.serving_throughput import in_turns
from vsemb import recipes
from vsemb.data import synthetic as scenes
from vsemb.data.writing.writer import write_dataset
from vsemb.exporting.versions import existing_versions
from vsemb.files import write_json
from vsemb.printing import table
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.run import Run
from vsemb.runs.serve import export_run
from vsemb.runs.train import train
from vsemb.serving.server import Server

QUICKSTART = Path("quickstart")
PREDICT = "/tensorflow.serving.PredictionService/Predict"
ROUNDS, WARM_UP = 3, 0.1
OURS, PLAIN = "vsemb serve", "plain aiohttp"
CLIENTS, REST_ROUNDS = (8, 64), 5


def serve(connection: Any, base: str, batch_size: int) -> None:
    """The server's process: sends its ports and waits until it is told to end."""
    with Server({"model": base}, port=0, rest_port=0, poll=0, batch_size=batch_size) as server:
        connection.send((server.rest_port, server.port))
        connection.recv()


def served(base: Path, batch_size: int) -> contextlib.AbstractContextManager[tuple[int, int]]:
    """Yields the ports, REST's first, of a server in another process."""
    return in_process(serve, str(base), batch_size)


def rest_sender(port: int) -> Callable[[Case], tuple[int, bytes]]:
    """Returns a function that sends one case over a connection of its own."""
    pool = urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=1, retries=False)
    headers = {"Content-Type": "application/json"}

    def send(case: Case) -> tuple[int, bytes]:
        response = pool.request("POST", "/v1/models/model:predict", body=case.rest, headers=headers, timeout=60)
        return response.status, response.data

    return send


def rpc_sender(port: int) -> Callable[[Case], tuple[str, bytes]]:
    """Returns a function that sends one case over a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    call = grpc.insecure_channel(f"127.0.0.1:{port}", options).unary_unary(PREDICT)

    def send(case: Case) -> tuple[str, bytes]:
        try:
            return "OK", call(case.rpc, timeout=60)
        except grpc.RpcError as error:
            return error.code().name, b""

    return send


def load(ports: tuple[int, int], cases: list[Case], requests: int, clients: int) -> tuple[list[Answer], float]:
    """Sends a count of requests from several clients at once; every client has one under way.

    Returns:
        The answers that came, and the seconds that all took.
    """
    numbers = itertools.count()
    answers: list[list[Answer]] = [[] for _ in range(clients)]
    barrier = threading.Barrier(clients + 1)

    def client(which: int) -> None:
        protocol = "gRPC" if which % 2 else "REST"
        send: Callable[[Case], tuple[Any, bytes]]
        send = rpc_sender(ports[1]) if which % 2 else rest_sender(ports[0])
        barrier.wait()
        while (number := next(numbers)) < requests:
            case = cases[number % len(cases)]
            begun = time.perf_counter()
            try:
                status, content = send(case)
            except (urllib3.exceptions.HTTPError, OSError):
                continue
            answers[which].append(Answer(protocol, case, time.perf_counter() - begun, status, content))

    threads = [threading.Thread(target=client, args=(which,)) for which in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return list(itertools.chain(*answers)), time.perf_counter() - begun


def measure_load(path: Path, requests: int, clients: int) -> dict[str, Any]:
    """Measures with merging and without, in turns, and checks every answer."""
    cases = make_cases(path)
    modes = {"batches of 64": 64, "no batches": 1}
    rates: dict[str, list[float]] = {mode: [] for mode in modes}
    answers: dict[str, list[Answer]] = {mode: [] for mode in modes}
    with contextlib.ExitStack() as stack:
        ports = {mode: stack.enter_context(served(path.parent, size)) for mode, size in modes.items()}
        for mode in modes:
            load(ports[mode], cases, int(WARM_UP * requests), clients)
        for _ in range(ROUNDS):
            for mode in modes:
                came, seconds = load(ports[mode], cases, requests, clients)
                rates[mode].append(len(came) / seconds)
                answers[mode] += came
    report: dict[str, Any] = {"requests": requests, "rounds": ROUNDS, "clients": clients, "modes": {}}
    for mode, came in answers.items():
        faults = Counter(fault for answer in came if (fault := wrong(answer)))
        malformed = sum(answer.case.kind not in ("text", "8 texts", "image") for answer in came)
        report["modes"][mode] = {
            "requests_per_second": [round(rate, 1) for rate in sorted(rates[mode])],
            "answered": len(came),
            "malformed": malformed,
            "lost": requests * ROUNDS - len(came),
            "wrong": dict(faults),
            "milliseconds": {
                protocol: percentiles([a.seconds for a in came if a.protocol == protocol])
                for protocol in ("gRPC", "REST")
            },
        }
    return report


def measure_rest(path: Path, requests: int) -> dict[str, Any]:
    """Measures single texts over REST beside other servers of the model, in turns, and checks every answer."""
    cases = [case for case in make_cases(path) if case.kind == "text"]
    report: dict[str, Any] = {"requests": requests, "rounds": REST_ROUNDS, "clients": {}, "wrong": {}, "left_out": {}}
    with contextlib.ExitStack() as stack:
        ports = {
            OURS: stack.enter_context(served(path.parent, 64))[0],
            PLAIN: stack.enter_context(in_process(plain_server.serve, str(path))),
        }
        if shutil.which(MODEL_SERVER) is None:
            report["left_out"][MODEL_SERVER] = f"{MODEL_SERVER} is not on PATH"
        else:
            try:
                ports[MODEL_SERVER] = stack.enter_context(model_server(path.parent))
            except (OSError, RuntimeError) as error:
                report["left_out"][MODEL_SERVER] = str(error)
        for clients in CLIENTS:
            bodies = [case.rest for case in cases]
            rates, replies = in_turns(ports, bodies, requests, clients, REST_ROUNDS)
            report["clients"][str(clients)] = {
                name: [round(rate, 1) for rate in sorted(found)] for name, found in rates.items()
            }
            for name, came in replies.items():
                answers = (Answer("REST", cases[place], 0.0, status, content) for place, status, content in came)
                faults = Counter(fault for answer in answers if (fault := wrong(answer)))
                report["wrong"][f"{name}, {clients} clients"] = dict(faults)
    return report


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Returns percentiles in milliseconds."""
    return {f"p{p}": round(1e3 * float(np.percentile(seconds, p)), 2) for p in (50, 95, 99)} if seconds else {}


def small_run(folder: Path) -> tuple[Path, Path]:
    """Trains the quickstart's model on few scenes; returns its SavedModel and the run."""
    data = write_dataset(
        scenes.generate({"train": 600, "val": 60, "test": 60}),
        folder / "scenes",
        name="scenes",
        source={"format": "scenes", "path_name": "generated", "sha256": {}, "options": {}},
    )
    recipe = with_backbone(recipes.get("contrastive"), data, "SmallConvNet")
    run = train(recipe.with_overrides([*SETTINGS, "training.epochs=1"]), data, folder / "run")
    export_run(run, folder / "model")
    return folder / "model", run.path


def tables(report: dict[str, Any]) -> Iterator[str]:
    """Yields the report as text."""
    rows = []
    for mode, found in report["load"]["modes"].items():
        slowest, middle, fastest = found["requests_per_second"]
        for protocol, times in found["milliseconds"].items():
            rows.append([mode, protocol, *(f"{times[p]:.1f}" for p in ("p50", "p95", "p99"))])
        rows[-1] += [
            f"{middle:.0f} ({slowest:.0f} to {fastest:.0f})",
            found["lost"],
            sum(found["wrong"].values()),
        ]
    header = ["load", "", "p50 ms", "p95 ms", "p99 ms", "requests/s of both", "lost", "wrong"]
    yield table(header, [[str(cell) for cell in [*row, "", "", ""][:8]] for row in rows], text=(0, 1))
    rows = [
        [f"{clients} clients", name, f"{found[len(found) // 2]:.0f} ({found[0]:.0f} to {found[-1]:.0f})"]
        for clients, servers in report["rest"]["clients"].items()
        for name, found in servers.items()
    ]
    yield table(["single texts over REST", "server", "requests/s"], rows, text=(0, 1))
    for batch, ways in report.get("encode_text", {}).items():
        rows = [
            [
                name,
                f"{way['milliseconds']:.2f}",
                f"{way['ratio']:.2f}",
                "{} to {}".format(*way["ratio_quartiles"]),
            ]
            for name, way in ways.items()
        ]
        yield table([f"encode_text, batch {batch}", "ms", "ratio", "quartiles"], rows)


def main() -> int:
    """Runs the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, metavar="savedmodels/NAME", help="a model's directory")
    parser.add_argument("--run", type=Path, help="the run that it was exported from, for the latencies")
    parser.add_argument("--requests", type=int, default=2000, help="of each round (%(default)s)")
    parser.add_argument("--clients", type=int, default=8, help="half of them over REST (%(default)s)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        model, run = arguments.model, arguments.run
        if model is None and run is None:
            model, run = QUICKSTART / "savedmodels" / "scenes", QUICKSTART / "run"
            if not model.is_dir():
                model, run = small_run(Path(folder))
        elif model is None:
            model = Path(folder) / "model"
            export_run(Run.open(run), model)
        path = model / str(existing_versions(model)[-1])
        report: dict[str, Any] = {"cores": os.cpu_count()}
        report["load"] = measure_load(path, arguments.requests, arguments.clients)
        report["rest"] = measure_rest(path, arguments.requests)
        if run is not None:
            report["encode_text"] = measure_latency(path, Run.open(run))
    print("\n\n".join(tables(report)))
    faults = [mode for mode, found in report["load"]["modes"].items() if found["lost"] or found["wrong"]]
    for mode in faults:
        print(f"{mode}: {report['load']['modes'][mode]['wrong']}", file=sys.stderr)
    for name, found in report["rest"]["wrong"].items():
        if found:
            faults.append(name)
            print(f"{name}: {found}", file=sys.stderr)
    if arguments.json:
        write_json(arguments.json, report)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
