"""Run a SavedModel in a process that can import neither vsemb nor Keras.

As a script, it reads a job as JSON from standard input and writes the results as JSON to standard output:

- job: `{"probe": one of PROBES, "model": directory, "path": [...], "tensors": {signature: {"inputs": {name: TENSOR},
  "outputs": {...}}}, "runs": [{"signature": name, "inputs": {name: VALUES}}]}`, with the names of tensors in the graph
- found: `{"modules": [...], "results": [{"outputs": {name: VALUES}} or {"error": text}]}`
- VALUES: `{"dtype": "float32", "shape": [2, 3], "data": BASE64}`, little-endian; for strings the dtype is `object` and
  the data a list with one base64 text per string

Without a model it writes `{"operations": BASE64}`, the OpList of TensorFlow's C library.
"""

from __future__ import annotations

import base64
import ctypes
import importlib.util
import json
import os
import sys
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

#: Packages that cannot be imported; `import tensorflow` imports Keras if it is installed.
BLOCKED = ("keras", "tf_keras", "keras_hub", "keras_nlp", "vsemb", "tensorflow_text")

# tensorflow/core/framework/types.proto
NAMES = {1: "float32", 2: "float64", 3: "int32", 7: "object", 9: "int64", 10: "bool"}
NUMBERS = {name: number for number, name in NAMES.items()}
#: Bytes of a TF_TString on 64-bit machines.
STRING = 24


class Pointer(c_void_p):
    """An address; ctypes would convert a plain `c_void_p` to an integer and pass only its lower 32 bits."""


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = (("data", c_void_p), ("length", c_size_t), ("deallocator", c_void_p))


class Output(ctypes.Structure):
    """TF_Output: an operation and the index of an output."""

    _fields_ = (("operation", c_void_p), ("index", c_int))


#: Result types of functions of the C library, other than `int`.
RESULTS = {
    Pointer: (
        *("TF_NewStatus", "TF_NewGraph", "TF_NewSessionOptions", "TF_LoadSessionFromSavedModel"),
        *("TF_GraphOperationByName", "TF_AllocateTensor", "TF_TensorData", "TF_StringGetDataPointer"),
    ),
    c_size_t: ("TF_TensorByteSize", "TF_StringGetSize"),
    c_int64: ("TF_Dim",),
    c_char_p: ("TF_Message",),
    POINTER(Buffer): ("TF_GetAllOpList",),
}


def c_library() -> Any:
    """Load TensorFlow's C library from the installed wheel, without importing the package."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise OSError("TensorFlow is not installed.")
    folder = os.path.dirname(spec.origin)
    ctypes.CDLL(os.path.join(folder, "libtensorflow_framework.so.2"), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(os.path.join(folder, "libtensorflow_cc.so.2"), ctypes.RTLD_GLOBAL)
    for result, names in RESULTS.items():
        for name in names:
            getattr(library, name).restype = result
    return library


class CLibrary:
    """A SavedModel in TensorFlow's C library, as in programs of other languages.

    Args:
        directory: directory of the version.
        tensors: names of tensors by signature, side and key.

    Raises:
        RuntimeError: with TensorFlow's message.
    """

    def __init__(self, directory: str, tensors: dict[str, Any]) -> None:
        self.tensors = tensors
        self.c = c_library()
        self.status, self.graph = self.c.TF_NewStatus(), self.c.TF_NewGraph()
        tags = (c_char_p * 1)(b"serve")
        self.session = self.c.TF_LoadSessionFromSavedModel(
            self.c.TF_NewSessionOptions(), None, os.fsencode(directory), tags, 1, self.graph, None, self.status
        )
        self.check()

    def check(self) -> None:
        """Raise a RuntimeError if the last call failed."""
        if self.c.TF_GetCode(self.status):
            raise RuntimeError(self.c.TF_Message(self.status).decode(errors="replace"))

    def run(self, signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run a signature on arrays and return arrays."""
        sides = self.tensors[signature]
        sources = [self.output(sides["inputs"][key]) for key in inputs]
        targets = [self.output(name) for name in sides["outputs"].values()]
        fed = (Pointer * len(sources))(*(self.tensor(array) for array in inputs.values()))
        fetched = (Pointer * len(targets))()
        self.c.TF_SessionRun(
            *(self.session, None, (Output * len(sources))(*sources), fed, len(sources)),
            *((Output * len(targets))(*targets), fetched, len(targets), None, 0, None, self.status),
        )
        for tensor in fed:
            self.c.TF_DeleteTensor(tensor)
        self.check()
        return {key: self.array(tensor) for key, tensor in zip(sides["outputs"], fetched, strict=True)}

    def output(self, tensor: str) -> Output:
        """Find a tensor by its name, such as `call:0`."""
        operation, _, index = tensor.partition(":")
        pointer = self.c.TF_GraphOperationByName(self.graph, operation.encode())
        if not pointer:
            raise RuntimeError(f"the graph has no operation {operation}")
        return Output(pointer, int(index or 0))

    def tensor(self, array: Any) -> Pointer:
        """Convert an array to a tensor."""
        size = STRING * array.size if array.dtype == object else array.nbytes
        sizes = (c_int64 * array.ndim)(*array.shape)
        tensor = self.c.TF_AllocateTensor(NUMBERS[array.dtype.name], sizes, array.ndim, c_size_t(size))
        data = self.c.TF_TensorData(tensor)
        if array.dtype != object:
            ctypes.memmove(data, array.tobytes(), size)
            return tensor
        for place, string in enumerate(array.flat):
            address = Pointer(data.value + place * STRING)
            self.c.TF_StringInit(address)
            self.c.TF_StringCopy(address, string, c_size_t(len(string)))
        return tensor

    def array(self, tensor: Pointer) -> Any:
        """Convert a tensor to an array and free it."""
        import numpy as np

        shape = [self.c.TF_Dim(tensor, axis) for axis in range(self.c.TF_NumDims(tensor))]
        start, length = self.c.TF_TensorData(tensor).value, self.c.TF_TensorByteSize(tensor)
        dtype = NAMES[self.c.TF_TensorType(tensor)]
        if dtype == "object":
            flat = np.empty(length // STRING, object)
            flat[:] = [self.string(Pointer(start + place * STRING)) for place in range(len(flat))]
        else:
            flat = np.frombuffer(ctypes.string_at(start, length) if length else b"", dtype)
        self.c.TF_DeleteTensor(tensor)
        return flat.reshape(shape)

    def string(self, address: Pointer) -> bytes:
        """Return the string of a TF_TString."""
        return ctypes.string_at(self.c.TF_StringGetDataPointer(address), self.c.TF_StringGetSize(address))


class TensorFlowAlone:
    """A SavedModel in Python's TensorFlow; arguments as `CLibrary`."""

    def __init__(self, directory: str, tensors: dict[str, Any]) -> None:
        import tensorflow as tf

        self.tf = tf
        self.signatures = tf.saved_model.load(directory).signatures

    def run(self, signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run a signature on arrays and return arrays."""
        tensors = {
            key: self.tf.constant(array, self.tf.string if array.dtype == object else None)
            for key, array in inputs.items()
        }
        return {key: value.numpy() for key, value in self.signatures[signature](**tensors).items()}


#: Name in reports -> class that runs the model.
PROBES: dict[str, Any] = {"TensorFlow without Keras": TensorFlowAlone, "TensorFlow's C library": CLibrary}


def encode(array: Any) -> dict[str, Any]:
    """Convert an array to VALUES."""
    data: Any
    if array.dtype == object:
        data = [base64.b64encode(value).decode() for value in array.flat]
    else:
        data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def decode(values: dict[str, Any]) -> Any:
    """Convert VALUES to an array."""
    import numpy as np

    if values["dtype"] == "object":
        flat = np.empty(len(values["data"]), object)
        flat[:] = [base64.b64decode(value) for value in values["data"]]
    else:
        flat = np.frombuffer(base64.b64decode(values["data"]), values["dtype"])
    return flat.reshape(values["shape"])


def main() -> None:
    """Run the job on standard input."""
    job = json.load(sys.stdin)
    sys.path += job["path"]
    if "model" not in job:
        buffer = c_library().TF_GetAllOpList().contents
        print(json.dumps({"operations": base64.b64encode(ctypes.string_at(buffer.data, buffer.length)).decode()}))
        return
    # None makes imports fail, and hides the package from `find_spec`, by which TensorFlow looks for Keras.
    sys.modules.update(dict.fromkeys(BLOCKED))  # type: ignore[arg-type]
    model = PROBES[job["probe"]](job["model"], job["tensors"])
    results: list[dict[str, Any]] = []
    for run in job["runs"]:
        try:
            outputs = model.run(run["signature"], {key: decode(values) for key, values in run["inputs"].items()})
            results.append({"outputs": {key: encode(array) for key, array in outputs.items()}})
        except Exception as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    modules = sorted({name.split(".")[0] for name, module in sys.modules.items() if module is not None})
    print(json.dumps({"results": results, "modules": modules}))


if __name__ == "__main__":
    main()
