"""The gRPC API: TensorFlow Serving's PredictionService and ModelService."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import predict_pb2

from vsemb.serving.access import Access
from vsemb.serving.budget import ARRIVAL_SECONDS, Budget, tensor_bytes
from vsemb.serving.models import Arrays, from_protos
from vsemb.serving.parse_limits import require_message_size
from vsemb.serving.request_handler import LARGE, Predictor, aside
from vsemb.serving.status import Code, RequestError, invalid, unauthenticated

LOG = logging.getLogger("vsemb.serving")

#: Maximum number of concurrent calls other than Predict.
OTHER_CALLS = 16


@contextlib.asynccontextmanager
async def _reported(context: Any) -> AsyncIterator[None]:
    """Answer with the status of an error raised inside."""
    try:
        yield
    except RequestError as error:
        failure = error
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        LOG.exception("unexpected failure of a call")
        failure = RequestError(Code.INTERNAL, f"Internal error: {type(error).__name__}")
    else:
        return
    await context.abort(grpc.StatusCode[failure.code.name], failure.message)


def _unimplemented(method: str, fix: str = "Use Predict.") -> Callable[..., Awaitable[None]]:
    async def answer(self: GrpcApi, request: Any, context: Any) -> None:
        """Answer UNIMPLEMENTED."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not implemented by this server. {fix}")

    return answer


class GrpcApi:
    """PredictionService and ModelService.

    Methods on tf.Example and reloading of the configuration are not implemented.

    Args:
        predictor: runs the requests.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    async def Predict(self, request: Any, context: Any) -> Any:
        """Run a signature."""
        releases: list[Callable[[], None]] = []
        context.add_done_callback(lambda _: _call(releases))
        try:
            async with _reported(context):
                response, size = await self._predicted(request, releases)
        except BaseException:
            _call(releases)
            raise
        if context.done():
            _call(releases)
        elif size > LARGE:
            # A client that does not read must not keep others from their answers.
            asyncio.get_running_loop().call_later(ARRIVAL_SECONDS, _call, releases)
        return response

    async def _predicted(self, request: Any, releases: list[Callable[[], None]]) -> tuple[Any, int]:
        """Return the answer and the bytes of its arrays; `releases` gets what to call when it has been sent."""
        with self._predictor.admitted("grpc") as call:
            name, version, label = _asked(request.model_spec)
            versions = self._predictor.model(name, version)
            call.model = name
            with versions.lease(version, label) as (number, model):
                signature = model.signature(request.model_spec.signature_name)
                call.signature = signature.name
                inputs = await aside(request.ByteSize(), from_protos, request.inputs)
                outputs = await self._predictor.run(model, signature, inputs, releases.append, request.output_filter)
            size = sum(array.nbytes for array in outputs.values())
            return await aside(size, _response, name, number, signature.name, outputs), size

    async def GetModelMetadata(self, request: Any, context: Any) -> Any:
        """Return the signatures of a version."""
        async with _reported(context):
            if not request.HasField("model_spec"):
                raise invalid("Missing ModelSpec")
            if not request.metadata_field:
                raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
            for field in request.metadata_field:
                if field != "signature_def":
                    raise invalid(f"Metadata field {field} is not supported")
            return self._predictor.metadata(*_asked(request.model_spec))

    async def GetModelStatus(self, request: Any, context: Any) -> Any:
        """Return the states of a model's versions."""
        async with _reported(context):
            return self._predictor.status(*_asked(request.model_spec))

    Classify = _unimplemented("Classify")
    Regress = _unimplemented("Regress")
    MultiInference = _unimplemented("MultiInference")
    HandleReloadConfigRequest = _unimplemented("HandleReloadConfigRequest", "Restart the server with other models.")


class Guard(grpc.aio.ServerInterceptor):
    """Check the token of calls, and limit the memory and time in which their messages are read.

    Calls are handled as streams, because a handler of streams is called before the message is read.

    Args:
        access: token of the server.
        predicting: bytes of the calls of Predict.
        max_body: maximum bytes of a message.
        max_rows: maximum rows of a request.
    """

    def __init__(self, access: Access, predicting: Budget, max_body: int, max_rows: int) -> None:
        self._access = access
        self._max_body = max_body
        self._max_rows = max_rows
        self._predicting = predicting
        # A separate budget, so that status requests are answered while predictions use all bytes.
        self._others = Budget(OTHER_CALLS * max_body)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        """Return the method that answers a call."""
        given = dict(call.invocation_metadata).get("authorization", "")
        if not (isinstance(given, str) and self._access.allows(given)):
            return grpc.stream_unary_rpc_method_handler(_refuse)
        method = await continuation(call)
        if method is None:
            return None
        budget = self._predicting if call.method.endswith("/Predict") else self._others
        answer = functools.partial(self._answer, method.unary_unary, budget)
        read = functools.partial(self._read, method.request_deserializer)
        return grpc.stream_unary_rpc_method_handler(answer, read, method.response_serializer)

    def _read(self, parse: Any, data: bytes) -> Any:
        """Parse a message; `parse` is the `FromString` of its class."""
        require_message_size(data, parse.__self__.DESCRIPTOR, self._max_rows)
        return parse(data)

    async def _answer(
        self, method: Callable[[Any, Any], Awaitable[Any]], budget: Budget, requests: Any, context: Any
    ) -> Any:
        async with _reported(context), budget.share(self._max_body) as keep:
            try:
                async with asyncio.timeout(ARRIVAL_SECONDS):
                    request = await context.read()
            except TimeoutError:
                late = f"The message must arrive within {ARRIVAL_SECONDS} seconds."
                raise RequestError(Code.DEADLINE_EXCEEDED, late) from None
            except DecodeError as error:
                raise invalid(f"The message cannot be read: {error}") from error
            if request is grpc.aio.EOF:
                raise invalid("The call must have a message.")
            size = self._size(request)
            if size > self._max_body:
                raise invalid(f"The request's tensors must have at most {self._max_body} bytes; got {size}.")
            keep(size)
            return await method(request, context)

    @staticmethod
    def _size(request: Any) -> int:
        """Return the bytes of a message, or of its tensors, whose values may be repeated."""
        tensors = request.inputs.values() if isinstance(request, predict_pb2.PredictRequest) else ()
        return max(request.ByteSize(), sum(map(tensor_bytes, tensors)))


def _call(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        function()


async def _refuse(requests: Any, context: Any) -> None:
    async with _reported(context):
        raise unauthenticated()


def _asked(spec: Any) -> tuple[str, int | None, str | None]:
    """Return name, version and label of a ModelSpec."""
    if not spec.name:
        raise invalid("Missing ModelSpec: the model's name")
    which = spec.WhichOneof("version_choice")
    return (
        spec.name,
        spec.version.value if which == "version" else None,
        spec.version_label if which == "version_label" else None,
    )


def _response(name: str, number: int, signature: str, outputs: Arrays) -> Any:
    response = predict_pb2.PredictResponse()
    response.model_spec.name = name
    response.model_spec.version.value = number
    response.model_spec.signature_name = signature
    for key, array in outputs.items():
        response.outputs[key].CopyFrom(to_proto(array))
    return response


# Type of an array -> field of TensorProto with its values.
_FIELDS: dict[np.dtype, str] = {
    np.dtype(object): "string_val",
    np.dtype(np.float32): "float_val",
    np.dtype(np.float64): "double_val",
    np.dtype(np.int64): "int64_val",
    np.dtype(bool): "bool_val",
    **{np.dtype(name): "int_val" for name in ("int32", "int16", "int8", "uint8", "uint16")},
}


def to_proto(array: np.ndarray) -> Any:
    """Convert an array to a TensorProto with its values in the field of its type, e.g. `float_val`.

    TensorFlow Serving fills these fields, and many clients read them. `tf.make_tensor_proto` fills `tensor_content`
    instead.

    Example:

    >>> list(to_proto(np.array([0.5, 2.0], np.float32)).float_val)
    [0.5, 2.0]
    """
    field = _FIELDS.get(array.dtype)
    if field is None:
        return tf.make_tensor_proto(array)
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    if array.dtype.kind == "f" and array.size:
        # The wire format of a packed field equals that of `tensor_content`: tag, length, values. This avoids a loop
        # over the values in Python.
        values = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        packed = tensor_pb2.TensorProto(tensor_content=values).SerializeToString()
        tag = proto.DESCRIPTOR.fields_by_name[field].number << 3 | 2
        proto.MergeFromString(bytes([tag]) + packed[1:])
    else:
        getattr(proto, field).extend(array.ravel().tolist())
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto
