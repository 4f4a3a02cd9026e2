"""Readers of datasets of classes."""

#: The command that usually follows the preparation of images with classes.
NEXT = "vsemb train ds-sje-word-cnn-rnn --data {data} --out {out} --backbone MobileNetV2"
