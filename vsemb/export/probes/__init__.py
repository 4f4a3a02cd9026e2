"""Scripts that are run alone, each in a process that imports nothing of vsemb: what they prove is that an
exported model needs neither vsemb nor Keras, and through the C library not even Python's TensorFlow.

Each reads a job as JSON from standard input and writes what it found as JSON to standard output:

- job: `{"model": directory, "path": [...], "runs": [{"signature": name, "inputs": {name: VALUES}}]}`
- found: `{"signatures": {name: {"inputs": {name: {"dtype", "shape"}}, "outputs": {...}}}, "modules": [...],
  "results": [{"outputs": {name: VALUES}} or {"error": text}]}`
- VALUES: `{"dtype": "float32", "shape": [2, 3], "data": BASE64}`, little-endian, and for strings the data is
  a list of one base64 text each.
"""
