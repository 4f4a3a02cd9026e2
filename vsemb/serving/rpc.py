"""The gRPC API: TensorFlow Serving's PredictionService and ModelService."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from vsemb.serving.model_messages import metadata_message, status_message
from vsemb.serving.models import Arrays
from vsemb.serving.request_handler import Predictor, aside
from vsemb.serving.status import Code, RequestError, invalid
from vsemb.serving.tensors import from_protos, to_proto

LOG = logging.getLogger("vsemb.serving")


@contextlib.asynccontextmanager
async def _reported(context: Any) -> AsyncIterator[None]:
    """Answers with the status of an error that is raised inside."""
    import grpc

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


def _asked(spec: Any) -> tuple[str, int | None, str | None]:
    """Returns name, version and label of a ModelSpec."""
    if not spec.name:
        raise invalid("Missing ModelSpec: the model's name")
    which = spec.WhichOneof("version_choice")
    return (
        spec.name,
        spec.version.value if which == "version" else None,
        spec.version_label if which == "version_label" else None,
    )


class PredictionService:
    """Predict and GetModelMetadata; the methods on tf.Example are not implemented.

    Args:
        predictor: what runs the requests.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    async def Predict(self, request: Any, context: Any) -> Any:
        """Runs a signature."""
        async with _reported(context):
            with self._predictor.admitted("grpc") as call:
                name, version, label = _asked(request.model_spec)
                versions = self._predictor.model(name, version)
                call.model = name
                with versions.lease(version, label) as (number, model):
                    signature = model.signature(request.model_spec.signature_name)
                    call.signature = signature.name
                    inputs = await aside(request.ByteSize(), from_protos, request.inputs)
                    outputs = await self._predictor.run(model, signature, inputs, request.output_filter)
                size = sum(array.nbytes for array in outputs.values())
                return await aside(size, _response, name, number, signature.name, outputs)

    async def GetModelMetadata(self, request: Any, context: Any) -> Any:
        """Returns the signatures of a version."""
        async with _reported(context):
            if not request.HasField("model_spec"):
                raise invalid("Missing ModelSpec")
            if not request.metadata_field:
                raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
            for field in request.metadata_field:
                if field != "signature_def":
                    raise invalid(f"Metadata field {field} is not supported")
            name, version, label = _asked(request.model_spec)
            with self._predictor.model(name, version).lease(version, label) as (number, model):
                return metadata_message(name, number, model)

    async def Classify(self, request: Any, context: Any) -> Any:
        """Not implemented."""
        await _unimplemented("Classify", context)

    async def Regress(self, request: Any, context: Any) -> Any:
        """Not implemented."""
        await _unimplemented("Regress", context)

    async def MultiInference(self, request: Any, context: Any) -> Any:
        """Not implemented."""
        await _unimplemented("MultiInference", context)


def _response(name: str, number: int, signature: str, outputs: Arrays) -> Any:
    from tensorflow_serving.apis import predict_pb2

    response = predict_pb2.PredictResponse()
    response.model_spec.name = name
    response.model_spec.version.value = number
    response.model_spec.signature_name = signature
    for key, array in outputs.items():
        response.outputs[key].CopyFrom(to_proto(array))
    return response


class ModelService:
    """GetModelStatus; the models are those that the server was started with.

    Args:
        predictor: what knows the models.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    async def GetModelStatus(self, request: Any, context: Any) -> Any:
        """Returns the states of a model's versions."""
        async with _reported(context):
            return status_message(self._predictor.models, *_asked(request.model_spec))

    async def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:
        """Not implemented."""
        await _unimplemented("HandleReloadConfigRequest", context, "Start the server with other models.")


async def _unimplemented(method: str, context: Any, fix: str = "Use Predict.") -> None:
    import grpc

    await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not implemented by this server. {fix}")
