"""Runs a SavedModel through TensorFlow's C library, as a program in another language would, by ctypes.

Python's TensorFlow is installed where the library lies, and is not imported. With `{"operations": true}` as
the job it lists the operations that the C library knows by itself, and those of tensorflow_text.
"""

from __future__ import annotations

import base64
import ctypes
import glob
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

# tensorflow/core/framework/types.proto; TF_TString is 24 bytes on 64-bit machines.
NAMES = {1: "float32", 2: "float64", 3: "int32", 7: "string", 9: "int64", 10: "bool", 14: "bfloat16"}
NUMBERS = {name: number for number, name in NAMES.items()}
SIZES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "bool": 1, "bfloat16": 2, "string": 24}


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = (("data", c_void_p), ("length", c_size_t), ("deallocator", c_void_p))

    def value(self) -> bytes:
        """Returns a copy of the bytes."""
        return ctypes.string_at(self.data, self.length) if self.length else b""


class Output(ctypes.Structure):
    """TF_Output: an operation and which of its outputs."""

    _fields_ = (("operation", c_void_p), ("index", c_int))


def declared(library: Any) -> Any:
    """Declares the functions that are used: their results and arguments."""
    integers, outputs, tensors = POINTER(c_int64), POINTER(Output), POINTER(c_void_p)
    for name, result, *arguments in (
        ("TF_NewStatus", c_void_p),
        ("TF_GetCode", c_int, c_void_p),
        ("TF_Message", c_char_p, c_void_p),
        ("TF_NewGraph", c_void_p),
        ("TF_NewSessionOptions", c_void_p),
        ("TF_NewBuffer", POINTER(Buffer)),
        ("TF_GetAllOpList", POINTER(Buffer)),
        ("TF_LoadLibrary", c_void_p, c_char_p, c_void_p),
        ("TF_GetOpList", Buffer, c_void_p),
        ("TF_GraphOperationByName", c_void_p, c_void_p, c_char_p),
        ("TF_AllocateTensor", c_void_p, c_int, integers, c_int, c_size_t),
        ("TF_DeleteTensor", None, c_void_p),
        ("TF_TensorData", c_void_p, c_void_p),
        ("TF_TensorType", c_int, c_void_p),
        ("TF_TensorByteSize", c_size_t, c_void_p),
        ("TF_NumDims", c_int, c_void_p),
        ("TF_Dim", c_int64, c_void_p, c_int),
        ("TF_StringInit", None, c_void_p),
        ("TF_StringCopy", None, c_void_p, c_char_p, c_size_t),
        ("TF_StringDealloc", None, c_void_p),
        ("TF_StringGetDataPointer", c_void_p, c_void_p),
        ("TF_StringGetSize", c_size_t, c_void_p),
        ("TF_CloseSession", None, c_void_p, c_void_p),
        ("TF_DeleteSession", None, c_void_p, c_void_p),
        (
            "TF_LoadSessionFromSavedModel",
            *(c_void_p, c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int),
            *(c_void_p, POINTER(Buffer), c_void_p),
        ),
        (
            "TF_SessionRun",
            *(None, c_void_p, c_void_p, outputs, tensors, c_int, outputs, tensors, c_int),
            *(c_void_p, c_int, c_void_p, c_void_p),
        ),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def folder_of(package: str) -> str | None:
    """Returns where a package is installed, without importing it."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else os.path.dirname(spec.origin)


def c_library() -> Any:
    """Loads TensorFlow's C library out of the installed wheel."""
    folder = folder_of("tensorflow")
    if folder is None:
        raise OSError("TensorFlow is not installed.")
    ctypes.CDLL(os.path.join(folder, "libtensorflow_framework.so.2"), ctypes.RTLD_GLOBAL)
    return declared(ctypes.CDLL(os.path.join(folder, "libtensorflow_cc.so.2"), ctypes.RTLD_GLOBAL))


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Reads a protobuf message: (field number, an integer or bytes), https://protobuf.dev/programming-guides/encoding."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}.get(wire)
        size = varint() if size is None else size
        yield number, data[at : at + size]
        at += size


def last(data: bytes, number: int, default: Any = b"") -> Any:
    """Returns a message's field of that number, the last one of them."""
    return next((value for found, value in reversed(list(fields(data))) if found == number), default)


def signature_defs(meta_graph: bytes) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Reads MetaGraphDef.signature_def: signature -> inputs, outputs -> name -> tensor, dtype, shape."""
    found: dict[str, Any] = {}
    for number, entry in fields(meta_graph):
        name = last(entry, 1).decode(errors="replace") if number == 5 else ""
        # TensorFlow's own, which initialises the model.
        if number != 5 or name.startswith("__saved_model"):
            continue
        sides: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}
        for side, item in fields(last(entry, 2)):
            if side in (1, 2):
                sides["inputs" if side == 1 else "outputs"][last(item, 1).decode()] = tensor_info(last(item, 2))
        found[name] = sides
    return found


def tensor_info(data: bytes) -> dict[str, Any]:
    """Reads a TensorInfo."""
    shape = last(data, 3)
    sizes = [last(dimension, 1, 0) for number, dimension in fields(shape) if number == 2]
    dtype = last(data, 2, 0)
    return {
        "tensor": last(data, 1).decode(),
        "dtype": NAMES.get(dtype, f"type {dtype}"),
        # -1, unknown, is a 64-bit number in two's complement.
        "shape": [None if size >= 1 << 63 else size for size in sizes],
    }


class Model:
    """A SavedModel loaded into a session.

    Args:
        directory: of the version.

    Raises:
        RuntimeError: with TensorFlow's message.
    """

    def __init__(self, directory: str) -> None:
        self.c = c_library()
        self.status = self.c.TF_NewStatus()
        self.graph = self.c.TF_NewGraph()
        described = self.c.TF_NewBuffer()
        tags = (c_char_p * 1)(b"serve")
        options = self.c.TF_NewSessionOptions()
        self.session = self.c.TF_LoadSessionFromSavedModel(
            options, None, os.fsencode(directory), tags, 1, self.graph, described, self.status
        )
        self.check()
        self.signatures = signature_defs(described.contents.value())

    def check(self) -> None:
        """Raises what the last call reported."""
        if self.c.TF_GetCode(self.status):
            raise RuntimeError(self.c.TF_Message(self.status).decode(errors="replace"))

    def run(self, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Runs a signature on VALUES and returns VALUES."""
        signature = self.signatures[name]
        sources = [self.output(signature["inputs"][key]["tensor"]) for key in inputs]
        wanted = list(signature["outputs"])
        targets = [self.output(signature["outputs"][key]["tensor"]) for key in wanted]
        fed = (c_void_p * len(inputs))(*(self.tensor(value) for value in inputs.values()))
        fetched = (c_void_p * len(wanted))()
        self.c.TF_SessionRun(
            *(self.session, None, (Output * len(sources))(*sources), fed, len(sources)),
            *((Output * len(targets))(*targets), fetched, len(targets), None, 0, None, self.status),
        )
        for pointer in fed:
            self.c.TF_DeleteTensor(pointer)
        self.check()
        found = {key: self.values(pointer) for key, pointer in zip(wanted, fetched, strict=True)}
        for pointer in fetched:
            self.c.TF_DeleteTensor(pointer)
        return found

    def output(self, tensor: str) -> Output:
        """Finds a tensor by its name, such as `call:0`."""
        operation, _, index = tensor.partition(":")
        found = self.c.TF_GraphOperationByName(self.graph, operation.encode())
        if not found:
            raise RuntimeError(f"the graph has no operation {operation}")
        return Output(found, int(index or 0))

    def tensor(self, values: dict[str, Any]) -> Any:
        """Makes a tensor of VALUES."""
        shape, dtype = values["shape"], values["dtype"]
        rows = values["data"] if dtype == "string" else [values["data"]]
        parts = [base64.b64decode(row) for row in rows]
        length = SIZES[dtype] * len(parts) if dtype == "string" else len(parts[0])
        sizes = (c_int64 * len(shape))(*shape)
        tensor = self.c.TF_AllocateTensor(NUMBERS[dtype], sizes, len(shape), length)
        data = self.c.TF_TensorData(tensor)
        if dtype != "string":
            ctypes.memmove(data, parts[0], length)
            return tensor
        for place, string in enumerate(parts):
            self.c.TF_StringInit(data + place * SIZES["string"])
            self.c.TF_StringCopy(data + place * SIZES["string"], string, len(string))
        return tensor

    def values(self, tensor: Any) -> dict[str, Any]:
        """Makes VALUES of a tensor."""
        number = self.c.TF_TensorType(tensor)
        dtype = NAMES.get(number, f"type {number}")
        shape = [self.c.TF_Dim(tensor, axis) for axis in range(self.c.TF_NumDims(tensor))]
        start, length = self.c.TF_TensorData(tensor), self.c.TF_TensorByteSize(tensor)
        data: Any
        if dtype == "string":
            places = range(start, start + length, SIZES["string"]) if length else ()
            data = [base64.b64encode(self.string(place)).decode() for place in places]
        else:
            data = base64.b64encode(ctypes.string_at(start, length) if length else b"").decode()
        return {"dtype": dtype, "shape": shape, "data": data}

    def string(self, place: int) -> bytes:
        """Returns the string of the TF_TString at an address."""
        return ctypes.string_at(self.c.TF_StringGetDataPointer(place), self.c.TF_StringGetSize(place))

    def close(self) -> None:
        """Ends the session."""
        self.c.TF_CloseSession(self.session, self.status)
        self.c.TF_DeleteSession(self.session, self.status)


def operations() -> dict[str, list[str]]:
    """Lists operations by the library that they come with."""
    c = c_library()
    core = names(c.TF_GetAllOpList().contents.value())
    found: dict[str, list[str]] = {"tensorflow": core, "tensorflow_text": []}
    folder, status = folder_of("tensorflow_text"), c.TF_NewStatus()
    for path in sorted(glob.glob(os.path.join(folder, "python", "ops", "*.so"))) if folder else ():
        handle = c.TF_LoadLibrary(os.fsencode(path), status)
        if handle:
            found["tensorflow_text"] += names(c.TF_GetOpList(handle).value())
    return found


def names(op_list: bytes) -> list[str]:
    """Reads the names in an OpList."""
    return [last(operation, 1).decode() for number, operation in fields(op_list) if number == 1]


def main() -> None:
    """Does the job on standard input."""
    job = json.load(sys.stdin)
    sys.path += job["path"]
    if job.get("operations"):
        print(json.dumps(operations()))
        return
    model = Model(job["model"])
    results: list[dict[str, Any]] = []
    for run in job["runs"]:
        try:
            results.append({"outputs": model.run(run["signature"], run["inputs"])})
        except Exception as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    model.close()
    # Which tensor an output is called inside is no one else's concern.
    for sides in model.signatures.values():
        for specs in sides.values():
            for spec in specs.values():
                del spec["tensor"]
    modules = sorted({name.split(".")[0] for name in sys.modules})
    print(json.dumps({"signatures": model.signatures, "results": results, "modules": modules}))


if __name__ == "__main__":
    main()
