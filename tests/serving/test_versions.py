"""New, broken and removed versions under a running server."""

from __future__ import annotations

import gc
import shutil
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf

from tests.serving.asking import ask
from tests.serving.conftest import publish_plus
from vsemb.errors import DataError
from vsemb.serving.models import WARMUP
from vsemb.serving.server import Server


def serving(base: Path, **options) -> Server:
    # Versions are looked for when a test says so, not by the clock.
    return Server({"plus": base}, port=0, rest_port=0, **{"poll": 0, **options})


def answer(server: Server, which: str = "") -> float | int:
    """Returns what the model adds to 0, or the HTTP status of a failure."""
    status, content = ask(server.rest_port, "POST", f"/v1/models/plus{which}:predict", {"inputs": [0]})
    return content["outputs"][0] if status == 200 else status


def states(server: Server) -> dict[str, str]:
    content = ask(server.rest_port, "GET", "/v1/models/plus")[1]
    return {one["version"]: one["state"] for one in content["model_version_status"]}


def test_a_new_version_takes_over(plus: Path) -> None:
    with serving(plus) as server:
        assert (answer(server), states(server)) == (100, {"1": "AVAILABLE"})
        publish_plus(plus, 200)
        assert answer(server) == 100
        server.refresh()
        assert (answer(server), states(server)) == (200, {"2": "AVAILABLE", "1": "END"})
        assert answer(server, "/versions/1") == 404
        metrics = ask(server.rest_port, "GET", "/metrics")[1].decode()
        assert 'vsemb_model_available{model="plus",version="2"} 1.0' in metrics
        assert 'vsemb_model_available{model="plus",version="1"}' not in metrics


def test_an_unloaded_version_leaves_nothing_behind(plus: Path) -> None:
    collects = gc.isenabled()
    # Otherwise Python could collect it by chance.
    gc.disable()
    try:
        with serving(plus) as server:
            with server.served["plus"].lease() as (_, model):
                unloaded = weakref.ref(model._functions["serving_default"].graph)
                del model
            publish_plus(plus, 200)
            server.refresh()
            assert answer(server) == 200
            assert unloaded() is None
    finally:
        if collects:
            gc.enable()


def test_what_goes_on_is_said_once(plus: Path, caplog) -> None:
    with serving(plus, labels={"canary": 7}) as server:
        server.refresh()
        moved = plus.rename(plus.with_name("elsewhere"))
        for _ in range(3):
            server.refresh()
        moved.rename(plus)
        assert answer(server) == 100
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "canary" in line] == ["plus: the version 7 of label canary does not exist yet."]
    assert len([line for line in said if "cannot read" in line]) == 1


def test_a_broken_version_is_reported_and_the_old_one_stays(plus: Path, caplog) -> None:
    with serving(plus) as server:
        path = publish_plus(plus, 200)
        whole = (path / "saved_model.pb").read_bytes()
        (path / "saved_model.pb").write_bytes(whole[:100])
        server.refresh()
        assert (answer(server), states(server)) == (100, {"2": "END", "1": "AVAILABLE"})
        status = ask(server.rest_port, "GET", "/v1/models/plus/versions/2")[1]["model_version_status"][0]["status"]
        assert status["error_code"] == "UNKNOWN" and "Cannot load" in status["error_message"]
        server.refresh()
        assert caplog.text.count("version 2 is not served") == 1
        # A copy that was not finished is read again when more of it has come.
        (path / "saved_model.pb").write_bytes(whole)
        server.refresh()
        assert (answer(server), states(server)) == (200, {"2": "AVAILABLE", "1": "END"})


def test_what_is_no_version_is_left_alone(plus: Path) -> None:
    with serving(plus) as server:
        (plus / "7").write_text("a file")
        for name in ("99999999999999999999", "02"):
            (plus / name).mkdir()
        server.refresh()
        assert (answer(server), states(server)) == (100, {"1": "AVAILABLE"})


def test_a_removed_version_gives_way_to_the_one_before(plus: Path) -> None:
    newest = publish_plus(plus, 200)
    with serving(plus) as server:
        assert answer(server) == 200
        shutil.rmtree(newest)
        server.refresh()
        assert (answer(server), states(server)) == (100, {"2": "END", "1": "AVAILABLE"})
        shutil.move(plus, plus.with_name("away"))
        server.refresh()
        assert answer(server) == 100


def test_policies_and_labels(plus: Path) -> None:
    publish_plus(plus, 200)
    publish_plus(plus, 300)
    with serving(plus, versions="all") as server:
        assert states(server) == dict.fromkeys("321", "AVAILABLE")
        assert [answer(server, f"/versions/{n}") for n in (1, 2, 3)] == [100, 200, 300]
    with serving(plus, versions=[2], labels={"old": 1}) as server:
        assert states(server) == {"2": "AVAILABLE", "1": "AVAILABLE"}
        assert (answer(server), answer(server, "/labels/old")) == (200, 100)
    with pytest.raises(DataError, match="must hold a version to serve as plus"), serving(plus, versions=[9]):
        pass


def record(values: list, signature: str = "") -> bytes:
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name, request.model_spec.signature_name = "plus", signature
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(values))
    return log.SerializeToString()


def write_warmup(path: Path, *records: bytes) -> None:
    file = path / WARMUP
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for one in records:
            writer.write(one)


def test_a_version_that_fails_on_its_warm_up_requests_is_not_served(plus: Path) -> None:
    with serving(plus) as server:
        write_warmup(publish_plus(plus, 200), record([1.0]), record(["text"]))
        server.refresh()
        assert (answer(server), states(server)) == (100, {"2": "END", "1": "AVAILABLE"})
        content = ask(server.rest_port, "GET", "/v1/models/plus/versions/2")[1]
        assert "Warm-up request 2" in content["model_version_status"][0]["status"]["error_message"]
        write_warmup(publish_plus(plus, 300), record([1.0]))
        server.refresh()
        assert answer(server) == 300


def test_no_request_is_lost_while_versions_change(plus: Path) -> None:
    with serving(plus, poll=0.01) as server:
        published = threading.Event()

        def hammer(_: int) -> list[float]:
            found = []
            while not published.is_set():
                found.append(answer(server))
            # What is asked after the switch was seen comes from the new version.
            return found + [answer(server)]

        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(hammer, i) for i in range(4)]
            try:
                publish_plus(plus, 200)
                deadline = time.monotonic() + 60
                while answer(server) != 200:
                    assert time.monotonic() < deadline
            finally:
                published.set()
            answers = [task.result(60) for task in running]
    assert {one for found in answers for one in found} == {100, 200}
    for found in answers:
        # The model never changes back.
        assert found == sorted(found)
        assert found[-1] == 200


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda base: None, "No model directory at"),
        (lambda base: base.mkdir(parents=True), "must hold a version"),
        (lambda base: (base / "1").mkdir(parents=True), "Cannot load"),
        (lambda base: shutil.move(publish_plus(base.parent, 1), base), "is a single version. Pass the model's"),
    ],
)
def test_a_model_that_cannot_be_served(tmp_path: Path, make, message: str) -> None:
    base = tmp_path / "models" / "plus"
    make(base)
    with pytest.raises(DataError, match=message), serving(base):
        pass
