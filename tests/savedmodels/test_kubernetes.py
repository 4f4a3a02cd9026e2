"""The manifests for Kubernetes: its own fields, strictly, and that their parts agree."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.savedmodels.files import (
    REST,
    config_maps,
    listens,
    text,
)

SELECTOR = {"matchLabels": {"app": str}}
PROBE = {"periodSeconds": int, "timeoutSeconds": int, "failureThreshold?": int}
EXEC = {"exec": {"command": [str]}}
CONTAINER = {
    "name": str,
    "image": str,
    "command": [str],
    "args?": [str],
    "ports?": [{"name": str, "containerPort": int}],
    "startupProbe?": {**PROBE, **EXEC},
    "readinessProbe": {**PROBE, "exec?": EXEC["exec"], "httpGet?": {"path": str, "port": str}},
    "livenessProbe": {**PROBE, "tcpSocket?": {"port": int}, "httpGet?": {"path": str, "port": str}},
    "lifecycle": {"preStop": EXEC},
    "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"cpu": str, "memory": str}},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly?": True}],
}
POD = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "terminationGracePeriodSeconds": int,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": int,
        "runAsGroup": int,
        "fsGroup": int,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "hostAliases": [{"ip": "127.0.0.1", "hostnames": [str]}],
    "topologySpreadConstraints": [
        {"maxSkew": int, "topologyKey": str, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR}
    ],
    "containers": [CONTAINER],
    "volumes": [
        {
            "name": str,
            "persistentVolumeClaim?": {"claimName": str, "readOnly": True},
            "configMap?": {"name": str},
            "emptyDir?": {"sizeLimit": str},
        }
    ],
}
SPECS: dict[str, tuple[str, Any]] = {
    "PersistentVolumeClaim": (
        "v1",
        {"accessModes": [str], "resources": {"requests": {"storage": str}}},
    ),
    "Deployment": (
        "apps/v1",
        {
            "replicas": int,
            "selector": SELECTOR,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": {"app": str}, "annotations": dict}, "spec": POD},
        },
    ),
    "Service": (
        "v1",
        {"selector": {"app": str}, "ports": [{"name": str, "port": int, "targetPort": str}]},
    ),
    "PodDisruptionBudget": ("policy/v1", {"minAvailable": int, "selector": SELECTOR}),
    "NetworkPolicy": (
        "networking.k8s.io/v1",
        {
            "podSelector": SELECTOR,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": str}]}],
        },
    ),
}


def problems(value: Any, schema: Any, where: str = "") -> list[str]:
    """What is not as the schema has it: fields that are unknown or missing, other types and values.

    A schema is a type, a value, a dictionary (`key?` may be missing), or a list of one schema or of values.
    """
    if isinstance(schema, type):
        return [] if type(value) is schema else [f"{where}: {value!r} is no {schema.__name__}"]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{where}: {value!r} is no mapping"]
        known = {key.removesuffix("?"): entry for key, entry in schema.items()}
        found = [f"{where}.{key}: unknown" for key in value if key not in known]
        found += [f"{where}.{key}: missing" for key in schema if key[-1] != "?" and key not in value]
        return found + [
            problem for key in value if key in known for problem in problems(value[key], known[key], f"{where}.{key}")
        ]
    if isinstance(schema, list) and len(schema) == 1 and isinstance(schema[0], type | dict):
        if not isinstance(value, list) or not value:
            return [f"{where}: {value!r} is no list"]
        return [problem for i, entry in enumerate(value) for problem in problems(entry, schema[0], f"{where}[{i}]")]
    return [] if type(value) is type(schema) and value == schema else [f"{where}: {value!r}, not {schema!r}"]


def test_every_field_is_one_of_kubernetes_own(manifests):
    assert manifests.keys() == SPECS.keys()
    for kind, manifest in manifests.items():
        version, spec = SPECS[kind]
        metadata = {"name": str, "labels": {"app": str}}
        schema = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        assert problems(manifest, schema, kind) == []


def test_kubernetes_own_schemas_accept_the_manifests(manifests):
    validator = pytest.importorskip("kubernetes_validate", reason="the extra dev is not installed")
    versions = validator.utils.all_versions()
    for manifest in manifests.values():
        for version in (versions[0], versions[-1]):
            validator.validate(manifest, validator.utils.major_minor(version), strict=True)
    spec = manifests["Service"]["spec"]
    with pytest.raises(validator.ValidationError):
        validator.validate(manifests["Service"] | {"spec": spec | {"typo": 1}}, versions[-1], strict=True)


def test_the_schema_check_notices():
    assert problems({"a": 1}, {"a": str}) == [".a: 1 is no str"]
    assert problems({"b": 1}, {"a": int}) == [".b: unknown", ".a: missing"]
    assert problems({"a": [{"b": True}]}, {"a": [{"b": False}]}) == [".a[0].b: True, not False"]
    assert problems({"a": True}, {"a": int}) == [".a: True is no int"]
    assert problems({}, {"a?": int}) == []


def test_selectors_ports_and_users_agree(manifests, containers):
    deployment = manifests["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels == manifests["Service"]["spec"]["selector"]
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert 1 <= manifests["PodDisruptionBudget"]["spec"]["minAvailable"] < deployment["replicas"]
    ports = {port["name"]: port["containerPort"] for port in containers["nginx"]["ports"]}
    assert sorted(ports.values()) == sorted(listens()) and "ports" not in containers["serving"]
    reachable = {port["port"] for port in manifests["NetworkPolicy"]["spec"]["ingress"][0]["ports"]}
    assert reachable == set(ports)
    assert {port["targetPort"] for port in manifests["Service"]["spec"]["ports"]} == {"rest", "grpc"}
    annotations = deployment["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == ports["metrics"]
    user = deployment["template"]["spec"]["securityContext"]["runAsUser"]
    assert user > 0 and f"{user}:{user}" in text("compose.yaml")
    assert containers["serving"]["livenessProbe"]["tcpSocket"]["port"] == REST


def test_all_volumes_are_used_and_all_mounts_exist(manifests, containers):
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    used = {mount["name"] for container in containers.values() for mount in container["volumeMounts"]}
    assert used == {volume["name"] for volume in pod["volumes"]}
    nginx = containers["nginx"]
    assert "/config/serving/nginx.conf" in nginx["command"] and "nginx.conf" in config_maps()["vsemb-serving"]
    # What is not read-only is not kept, and limited.
    for container in containers.values():
        for mount in container["volumeMounts"]:
            (volume,) = [v for v in pod["volumes"] if v["name"] == mount["name"]]
            assert mount.get("readOnly") or "emptyDir" in volume


def test_nginx_ends_before_the_server_and_both_in_time(manifests, containers):
    nginx = containers["nginx"]["lifecycle"]["preStop"]["exec"]["command"][-1]
    pauses = [int(seconds) for seconds in re.findall(r"sleep (\d+)", nginx)]
    name, server = containers["serving"]["lifecycle"]["preStop"]["exec"]["command"]
    grace = manifests["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert name == "sleep" and sum(pauses) < int(server) < grace
