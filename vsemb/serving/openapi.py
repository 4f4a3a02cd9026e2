"""The REST API as an OpenAPI 3.1 description, made from the signatures of the served models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

import vsemb
from vsemb.serving.models import DEFAULT_SIGNATURE, LoadedSignature, ModelVersions
from vsemb.serving.status import RequestError

Schema = dict[str, Any]

_BASE64 = {"b64": {"type": "string", "contentEncoding": "base64"}}


def describe(models: Mapping[str, ModelVersions]) -> Schema:
    """Return the description of the models that are loaded now.

    Args:
        models: name -> versions; the newest version counts.
    """
    paths: Schema = {}
    for name, versions in models.items():
        path = f"/v1/models/{name}"
        paths[path] = {"get": _operation("States of the versions")}
        with contextlib.suppress(RequestError), versions.lease() as (_, model):
            paths[f"{path}/metadata"] = {"get": _operation("Signatures")}
            forms = zip(*(form for each in model.signatures.values() for form in _forms(each)), strict=True)
            paths[f"{path}:predict"] = {"post": _operation("Outputs of a signature", *forms)}
    return {"openapi": "3.1.0", "info": {"title": "vsemb serve", "version": vsemb.__version__}, "paths": paths}


def _forms(signature: LoadedSignature) -> Iterator[tuple[Schema, Schema]]:
    """Yield the schemas of request and answer: of columns and, if all tensors have a batch, of rows."""
    named = {"signature_name": {"const": signature.name}}
    for asked, answered, first in (("inputs", "outputs", 0), ("instances", "predictions", 1)):
        specs = signature.inputs, signature.outputs
        if first and not all(spec.shape.rank for each in specs for spec in each.values()):
            continue
        inputs, outputs = ({key: _tensor(spec, first) for key, spec in each.items()} for each in specs)
        given = [_object(inputs, signature.required) | {"additionalProperties": False}]
        if len(signature.required) == 1:
            given.append(inputs[signature.required[0]])
        schema = _object(outputs) if len(outputs) > 1 else next(iter(outputs.values()))
        if first:
            given = [{"type": "array", "minItems": 1, "items": each} for each in given]
            schema = {"type": "array", "items": schema}
        required = [asked, *([] if signature.name == DEFAULT_SIGNATURE else named)]
        yield _object(named | {asked: {"anyOf": given}}, required), _object({answered: schema})


def _tensor(spec: tf.TensorSpec, first: int) -> Schema:
    if spec.shape.rank is None:
        return {}
    # Floats have no limits: the fewest digits of the largest float32 are above it.
    schema: Any = {"type": "number"} if spec.dtype.is_floating else {"type": "boolean"}
    if spec.dtype == tf.string:
        schema = {"anyOf": [{"type": "string"}, _object(_BASE64) | {"additionalProperties": False}]}
    elif spec.dtype.is_integer:
        schema = {"type": "integer", "minimum": int(spec.dtype.min), "maximum": int(spec.dtype.max)}
    for size in reversed(spec.shape[first:]):
        schema = {"type": "array", "items": schema} | ({} if size is None else {"minItems": size, "maxItems": size})
    return schema


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


def _operation(summary: str, requests: Sequence[Schema] = (), answers: Sequence[Schema] = ()) -> Schema:
    bodies = requests, answers or [{"type": "object"}], [_object({"error": {"type": "string"}})]
    asked, whole, error = ({"content": {"application/json": {"schema": {"anyOf": each}}}} for each in bodies)
    failed = error | {"description": "Reason of the failure"}
    responses = {"200": whole | {"description": summary}, "4XX": failed, "503": failed}
    body = {"requestBody": asked | {"required": True}} if requests else {}
    return {"summary": summary, "responses": responses} | body
