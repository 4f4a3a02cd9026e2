"""TensorFlow Serving's gRPC API, as a client: PredictionService and ModelService."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vsemb.errors import missing_extra
from vsemb.serving.transports import (
    DTYPES,
    Address,
    Arrays,
    SignatureInfo,
    TensorInfo,
    VersionStatus,
    refused,
    too_slow,
    unreachable,
)

#: Bytes of the largest message sent or received; gRPC's own limit is 4 MB.
LARGEST_MESSAGE = 256 * 2**20

# What gRPC itself says of a server that it cannot reach.
_OF_THE_CONNECTION = ("connect", "Socket closed", "resolv")

_OPTIONS = [
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # Attempts are counted by the client, not also underneath it.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A proxy that the environment names is for the web.
    ("grpc.enable_http_proxy", 0),
]


class GrpcTransport:
    """Speaks gRPC over one connection. Its methods may be called from several threads.

    TensorFlow is imported, since the API's messages hold TensorFlow's.

    Args:
        address: where the model is.

    Raises:
        MissingExtraError: if tensorflow-serving-api is not installed.
    """

    def __init__(self, address: Address) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
        except ImportError as error:
            raise missing_extra("tensorflow-serving-api", "serving") from error
        self._grpc = grpc
        self._address = address
        target = f"{address.host}:{address.port}"
        self.where = f"{'grpcs' if address.secure else 'grpc'}://{target}"
        if address.secure:
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(), options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        """See `Transport.predict`."""
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        self._name(request.model_spec)
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
            request.inputs[name].CopyFrom(tf.make_tensor_proto(array, dtype=dtype, shape=array.shape))
        answer = self._call(self._prediction.Predict, request, timeout)
        if answer.outputs.keys() != outputs.keys():
            raise refused(self.where, "UNKNOWN", "that is not the model's signature: outputs are missing")
        return {name: _array(answer.outputs[name], tf.make_ndarray) for name in outputs}

    def signatures(self, timeout: float) -> dict[str, SignatureInfo]:
        """See `Transport.signatures`."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._name(request.model_spec)
        answer = self._call(self._prediction.GetModelMetadata, request, timeout)
        definitions = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(definitions)
        return {
            name: SignatureInfo(_infos(value.inputs), _infos(value.outputs))
            for name, value in sorted(definitions.signature_def.items())
            # The operations that initialise a model are listed too and are no signature to call.
            if not name.startswith("__")
        }

    def status(self, timeout: float) -> list[VersionStatus]:
        """See `Transport.status`."""
        from tensorflow_serving.apis import get_model_status_pb2

        request = get_model_status_pb2.GetModelStatusRequest()
        self._name(request.model_spec)
        answer = self._call(self._models.GetModelStatus, request, timeout)
        states = get_model_status_pb2.ModelVersionStatus.State
        codes = {code.value[0]: code.name for code in self._grpc.StatusCode}
        return [
            VersionStatus(
                entry.version,
                states.Name(entry.state),
                codes.get(entry.status.error_code, "UNKNOWN"),
                entry.status.error_message,
            )
            for entry in answer.model_version_status
        ]

    def close(self) -> None:
        """See `Transport.close`."""
        self._channel.close()

    def _name(self, spec: Any) -> None:
        spec.name = self._address.model
        if self._address.label is not None:
            spec.version_label = self._address.label
        elif self._address.version is not None:
            spec.version.value = self._address.version

    def _call(self, method: Callable[..., Any], request: Any, timeout: float) -> Any:
        codes = self._grpc.StatusCode
        try:
            return method(request, timeout=timeout)
        except self._grpc.RpcError as error:
            code, details = error.code(), error.details() or "no reason given"
            if code is codes.DEADLINE_EXCEEDED:
                raise too_slow(self.where, timeout) from error
            # A server that is reached says so itself; the words are those of the connection.
            if code is codes.UNAVAILABLE and any(word in details for word in _OF_THE_CONNECTION):
                raise unreachable(self.where, details) from error
            raise refused(self.where, code.name, details) from error


def _array(proto: Any, make_ndarray: Callable[[Any], np.ndarray]) -> np.ndarray:
    array = make_ndarray(proto)
    # Arrays of the message's own memory cannot be written to.
    return array if array.flags.writeable else array.copy()


def _infos(tensors: Mapping[str, Any]) -> dict[str, TensorInfo]:
    from tensorflow.core.framework import types_pb2

    infos = {}
    for name, tensor in sorted(tensors.items()):
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        known = tuple(None if size < 0 else size for size in sizes)
        shape = None if tensor.tensor_shape.unknown_rank else known
        infos[name] = TensorInfo(DTYPES[types_pb2.DataType.Name(tensor.dtype)], shape)
    return infos
