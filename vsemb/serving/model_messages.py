"""The answers about models, as TensorFlow Serving's messages: their status and their signatures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vsemb.serving.models import LoadedModel
from vsemb.serving.status import Code, RequestError
from vsemb.serving.versions import ModelVersions, Version


def status_message(
    models: Mapping[str, ModelVersions], name: str, version: int | None = None, label: str | None = None
) -> Any:
    """Returns the GetModelStatusResponse of a model, or of one of its versions.

    Raises:
        RequestError: NOT_FOUND for an unknown model or version, INVALID_ARGUMENT for an unknown label.
    """
    from tensorflow_serving.apis import get_model_status_pb2

    if name not in models:
        which = "any versions" if version is None else f"version {version}"
        raise RequestError(Code.NOT_FOUND, f"Could not find {which} of model {name}")
    model = models[name]
    if label:
        version = model.labelled(label)
    if version is None:
        found = sorted(model.versions.values(), key=lambda one: -one.number)
    elif version in model.versions:
        found = [model.versions[version]]
    else:
        raise RequestError(Code.NOT_FOUND, f"Could not find version {version} of model {name}")
    response = get_model_status_pb2.GetModelStatusResponse()
    for one in found:
        _add_status(response, one)
    return response


def _add_status(response: Any, version: Version) -> None:
    status = response.model_version_status.add(version=version.number, state=int(version.state))
    if version.error:
        # google.rpc.Code UNKNOWN, which TensorFlow Serving reports for most failures to load.
        status.status.error_code = 2
        status.status.error_message = version.error


def metadata_message(name: str, number: int, model: LoadedModel) -> Any:
    """Returns the GetModelMetadataResponse of a version: its signatures."""
    from tensorflow_serving.apis import get_model_metadata_pb2

    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = number
    response.metadata["signature_def"].Pack(_signature_map(model))
    return response


def _signature_map(model: LoadedModel) -> Any:
    from tensorflow_serving.apis import get_model_metadata_pb2

    signatures = get_model_metadata_pb2.SignatureDefMap()
    for key, definition in model.signature_defs.items():
        signatures.signature_def[key].CopyFrom(definition)
    return signatures


def metadata_json(name: str, number: int, model: LoadedModel) -> bytes:
    """Returns the body of `GET .../metadata`."""
    spec = {"name": name, "signature_name": "", "version": str(number)}
    body = {"model_spec": spec, "metadata": {"signature_def": _to_json(_signature_map(model))}}
    return json.dumps(body, indent=1).encode()


def status_json(response: Any) -> bytes:
    """Returns the body of `GET /v1/models/NAME` for a GetModelStatusResponse."""
    found = _to_json(response)["model_version_status"]
    for one in found:
        # A message that is not set is left out by the converter and written by TensorFlow Serving.
        one.setdefault("status", {"error_code": "OK", "error_message": ""})
    return json.dumps({"model_version_status": found}, indent=1).encode()


def _to_json(message: Any) -> Any:
    from google.protobuf import json_format

    return json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )
