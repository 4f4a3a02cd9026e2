"""The deployment files as their readers read them, for the tests of this folder."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[2] / "savedmodels"
MODEL = "flickr8k"
GRPC, REST = 8500, 8501
IMAGES = {"serving": "tensorflow/serving:2.20.0", "nginx": "nginx:1.28.0-alpine"}

# The flags of tensorflow_model_server 2.20 that these files may use.
FLAGS = {
    "port",
    "rest_api_port",
    "rest_api_timeout_in_ms",
    "model_config_file",
    "model_config_file_poll_wait_seconds",
    "allow_version_labels_for_unavailable_models",
    "enable_batching",
    "batching_parameters_file",
    "monitoring_config_file",
}


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def flags_of(arguments: list[str]) -> dict[str, str]:
    flags = dict(argument.removeprefix("--").split("=") for argument in arguments)
    assert flags.keys() <= FLAGS and len(flags) == len(arguments)
    return flags


def config_maps() -> dict[str, list[str]]:
    """The config maps that kustomize makes, and the files in each; all of them are here."""
    kustomization = yaml.safe_load(text("kustomization.yaml"))
    assert kustomization.keys() == {"apiVersion", "kind", "resources", "configMapGenerator"}
    assert kustomization["resources"] == ["kubernetes.yaml"]
    maps = {entry["name"]: entry["files"] for entry in kustomization["configMapGenerator"]}
    assert all((FOLDER / file).is_file() for files in maps.values() for file in files)
    # A changed models.config is read by running servers; a name with a hash would start new ones.
    fixed = [e["name"] for e in kustomization["configMapGenerator"] if e.get("options")]
    assert fixed == ["vsemb-models"] and maps["vsemb-models"] == ["models.config"]
    return maps


def mounts(container: dict, manifests: dict) -> dict[str, dict]:
    volumes = {v["name"]: v for v in manifests["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}


def listens() -> list[int]:
    return [int(port) for port in re.findall(r"listen (\d+);", text("nginx.conf"))]
