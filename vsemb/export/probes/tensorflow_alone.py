"""Runs a SavedModel with Python's TensorFlow and nothing else: Keras and vsemb are not even importable."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

#: Packages that cannot be imported; `import tensorflow` imports Keras where it finds it.
BLOCKED = ("keras", "tf_keras", "keras_hub", "keras_nlp", "vsemb", "tensorflow_text")


def main() -> None:
    """Does the job on standard input."""
    # None makes an import fail, and `find_spec`, by which TensorFlow looks for Keras, find nothing.
    sys.modules.update(dict.fromkeys(BLOCKED))  # type: ignore[arg-type]
    job = json.load(sys.stdin)
    sys.path += job["path"]
    import tensorflow as tf

    loaded = tf.saved_model.load(job["model"])
    signatures: dict[str, Any] = {}
    for name, function in loaded.signatures.items():
        sides = {"inputs": function.structured_input_signature[1], "outputs": function.structured_outputs}
        signatures[name] = {
            side: {
                key: {"dtype": spec.dtype.name, "shape": list(spec.shape) if spec.shape.rank else []}
                for key, spec in specs.items()
            }
            for side, specs in sides.items()
        }
    results: list[dict[str, Any]] = []
    for run in job["runs"]:
        try:
            inputs = {key: tensor(tf, values) for key, values in run["inputs"].items()}
            outputs = loaded.signatures[run["signature"]](**inputs)
            results.append({"outputs": {key: values(value.numpy()) for key, value in outputs.items()}})
        except Exception as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    modules = sorted({name.split(".")[0] for name, module in sys.modules.items() if module is not None})
    print(json.dumps({"signatures": signatures, "results": results, "modules": modules}))


def tensor(tf: Any, values: dict[str, Any]) -> Any:
    """Makes a tensor of VALUES."""
    if values["dtype"] == "string":
        strings = [base64.b64decode(value) for value in values["data"]]
        return tf.reshape(tf.constant(strings, tf.string), values["shape"])
    flat = tf.io.decode_raw(base64.b64decode(values["data"]), tf.dtypes.as_dtype(values["dtype"]))
    return tf.reshape(flat, values["shape"])


def values(array: Any) -> dict[str, Any]:
    """Makes VALUES of a NumPy array."""
    data: Any
    if array.dtype == object:
        data = [base64.b64encode(value).decode() for value in array.reshape(-1)]
    else:
        data = base64.b64encode(array.tobytes()).decode()
    name = "string" if array.dtype == object else array.dtype.name
    return {"dtype": name, "shape": list(array.shape), "data": data}


if __name__ == "__main__":
    main()
