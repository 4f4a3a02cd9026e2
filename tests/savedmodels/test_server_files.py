"""The configuration of TensorFlow Serving, and the guide that names its files."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.wrappers_pb2 import DESCRIPTOR as WRAPPERS

from tests.savedmodels.files import (
    FOLDER,
    MODEL,
    text,
)

# Messages that the wheel of tensorflow-serving-api leaves out, as TensorFlow Serving documents them:
# session_bundle_config.proto and monitoring_config.proto. Their fields are numbered from 1.
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": ".google.protobuf.Int64Value",
        "batch_timeout_micros": ".google.protobuf.Int64Value",
        "max_enqueued_batches": ".google.protobuf.Int64Value",
        "num_batch_threads": ".google.protobuf.Int64Value",
        "thread_pool_name": ".google.protobuf.StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": ".vsemb_test.PrometheusConfig"},
}


@functools.cache
def messages() -> dict[str, Any]:
    """The classes of `MESSAGES` by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="vsemb_test.proto", package="vsemb_test", syntax="proto3", dependency=[WRAPPERS.name]
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (key, kind) in enumerate(fields.items(), start=1):
            repeated = kind.startswith("repeated ")
            kind = kind.removeprefix("repeated ")
            field = message.field.add(name=key, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind.startswith("."):
                field.type, field.type_name = kinds.TYPE_MESSAGE, kind
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    found = {name: pool.FindMessageTypeByName(f"vsemb_test.{name}") for name in MESSAGES}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


def test_models_config_names_versions_and_labels_among_them():
    from tensorflow_serving.config import model_server_config_pb2

    parsed = text_format.Parse(text("models.config"), model_server_config_pb2.ModelServerConfig())
    (config,) = parsed.model_config_list.config
    assert (config.name, config.base_path, config.model_platform) == (MODEL, f"/models/{MODEL}", "tensorflow")
    versions = list(config.model_version_policy.specific.versions)
    # The first export is version 1, so a first start needs no edit.
    assert versions == [1]
    assert set(config.version_labels) == {"stable", "canary"}
    assert set(config.version_labels.values()) <= set(versions)


def test_monitoring_config_is_on_where_nginx_and_prometheus_look(manifests):
    parsed = text_format.Parse(text("monitoring.config"), messages()["MonitoringConfig"]())
    assert parsed.prometheus_config.enable
    path = parsed.prometheus_config.path
    annotations = manifests["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == path and f"location = {path} {{" in text("nginx.conf")


def test_batching_config_keeps_the_rules_of_the_batching_session(compose, containers):
    from vsemb.serving import Client

    parsed = text_format.Parse(text("batching.config"), messages()["BatchingParameters"]())
    sizes = list(parsed.allowed_batch_sizes)
    assert sizes == sorted(set(sizes)) and sizes[-1] == parsed.max_batch_size.value
    # A single text is padded to nothing, and what the client sends at once is taken.
    assert sizes[0] == 1 and Client("http://host", MODEL).batch_size <= parsed.max_batch_size.value
    assert 0 < parsed.batch_timeout_micros.value <= 10_000 and parsed.max_enqueued_batches.value >= 1
    # Trees of several lengths would otherwise fail together, see tests/systems/trees/test_signature.py.
    assert parsed.pad_variable_length_inputs
    threads = str(parsed.num_batch_threads.value)
    assert compose["services"]["serving"]["deploy"]["resources"]["limits"]["cpus"] == threads
    assert containers["serving"]["resources"]["limits"]["cpu"] == threads


def test_a_wrong_field_would_be_noticed():
    with pytest.raises(text_format.ParseError):
        text_format.Parse("max_batch_sizes { value: 1 }", messages()["BatchingParameters"]())


def test_the_guide_names_all_files():
    guide = (FOLDER.parent / "docs/guides/deployment.md").read_text(encoding="utf-8")
    mentioned = set(re.findall(r"`([\w]+\.(?:config|conf|yaml|sh))`", guide))
    present = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert mentioned == present - {"README.md"}
