"""Exports to formats that run without TensorFlow: the towers of a model, as functions of numbers.

towers.py      what is converted: token ids or pixels in, embeddings out
writing.py     a directory of converted towers, checked before it is published
onnx.py        conversion to ONNX
litert.py      conversion to LiteRT
encode.py      the program in such a directory: strings and image files in, embeddings out
"""
