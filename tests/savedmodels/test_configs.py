"""The files that deploy a model: each is read as its reader reads it, and they agree with each other.

No container engine is needed: the checks that a container would run are run here, against a small server.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.wrappers_pb2 import DESCRIPTOR as WRAPPERS

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


# Messages that the wheel of tensorflow-serving-api leaves out, as TensorFlow Serving documents them:
# session_bundle_config.proto and monitoring_config.proto. Their fields are numbered from 1.
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": ".google.protobuf.Int64Value",
        "batch_timeout_micros": ".google.protobuf.Int64Value",
        "max_enqueued_batches": ".google.protobuf.Int64Value",
        "num_batch_threads": ".google.protobuf.Int64Value",
        "thread_pool_name": ".google.protobuf.StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": ".vsemb_test.PrometheusConfig"},
}


@functools.cache
def messages() -> dict[str, Any]:
    """The classes of `MESSAGES` by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="vsemb_test.proto", package="vsemb_test", syntax="proto3", dependency=[WRAPPERS.name]
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (key, kind) in enumerate(fields.items(), start=1):
            repeated = kind.startswith("repeated ")
            kind = kind.removeprefix("repeated ")
            field = message.field.add(name=key, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind.startswith("."):
                field.type, field.type_name = kinds.TYPE_MESSAGE, kind
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    found = {name: pool.FindMessageTypeByName(f"vsemb_test.{name}") for name in MESSAGES}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load(text("compose.yaml"))


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict]:
    """The manifests by kind, each of which there is once."""
    found = list(yaml.safe_load_all(text("kubernetes.yaml")))
    kinds = [manifest["kind"] for manifest in found]
    assert len(set(kinds)) == len(kinds)
    return dict(zip(kinds, found, strict=True))


@pytest.fixture(scope="module")
def containers(manifests) -> dict[str, dict]:
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    return {container["name"]: container for container in pod["containers"]}


def flags_of(arguments: list[str]) -> dict[str, str]:
    flags = dict(argument.removeprefix("--").split("=") for argument in arguments)
    assert flags.keys() <= FLAGS and len(flags) == len(arguments)
    return flags


# -- the server's own files ---------------------------------------------------------------------------------


def test_models_config_names_versions_and_labels_among_them():
    from tensorflow_serving.config import model_server_config_pb2

    parsed = text_format.Parse(text("models.config"), model_server_config_pb2.ModelServerConfig())
    (config,) = parsed.model_config_list.config
    assert (config.name, config.base_path, config.model_platform) == (MODEL, f"/models/{MODEL}", "tensorflow")
    versions = list(config.model_version_policy.specific.versions)
    # The first export is version 1, so a first start needs no edit.
    assert versions == [1]
    assert set(config.version_labels) == {"stable", "canary"}
    assert set(config.version_labels.values()) <= set(versions)


def test_monitoring_config_is_on_where_nginx_and_prometheus_look(manifests):
    parsed = text_format.Parse(text("monitoring.config"), messages()["MonitoringConfig"]())
    assert parsed.prometheus_config.enable
    path = parsed.prometheus_config.path
    annotations = manifests["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == path and f"location = {path} {{" in text("nginx.conf")


def test_batching_config_keeps_the_rules_of_the_batching_session(compose, containers):
    from vsemb.serving import Client

    parsed = text_format.Parse(text("batching.config"), messages()["BatchingParameters"]())
    sizes = list(parsed.allowed_batch_sizes)
    assert sizes == sorted(set(sizes)) and sizes[-1] == parsed.max_batch_size.value
    # A single text is padded to nothing, and what the client sends at once is taken.
    assert sizes[0] == 1 and Client("http://host", MODEL).batch_size <= parsed.max_batch_size.value
    assert 0 < parsed.batch_timeout_micros.value <= 10_000 and parsed.max_enqueued_batches.value >= 1
    assert not parsed.pad_variable_length_inputs
    threads = str(parsed.num_batch_threads.value)
    assert compose["services"]["serving"]["deploy"]["resources"]["limits"]["cpus"] == threads
    assert containers["serving"]["resources"]["limits"]["cpu"] == threads


def test_a_wrong_field_would_be_noticed():
    with pytest.raises(text_format.ParseError):
        text_format.Parse("max_batch_sizes { value: 1 }", messages()["BatchingParameters"]())


# -- containers ---------------------------------------------------------------------------------------------


def test_images_are_pinned_alike(compose, containers):
    assert {name: service["image"] for name, service in compose["services"].items()} == IMAGES
    assert {name: container["image"] for name, container in containers.items()} == IMAGES


def test_both_start_the_server_alike(compose, containers):
    service, container = compose["services"]["serving"], containers["serving"]
    assert service["entrypoint"] == container["command"] == ["/usr/bin/tensorflow_model_server"]
    ours, theirs = flags_of(service["command"]), flags_of(container["args"])
    assert {name: Path(value).name for name, value in ours.items()} == {
        name: Path(value).name for name, value in theirs.items()
    }
    assert ours.keys() == FLAGS and (int(ours["port"]), int(ours["rest_api_port"])) == (GRPC, REST)


def test_every_file_that_the_server_is_told_of_is_mounted(compose, containers, manifests):
    flags = flags_of(compose["services"]["serving"]["command"])
    (source, target, mode) = compose["services"]["serving"]["volumes"][0].split(":")
    assert (source, mode) == (".", "ro")
    files = [value for name, value in flags.items() if name.endswith("_file")]
    assert len(files) == 3
    for file in files:
        assert Path(file).parent == Path(target) and (FOLDER / Path(file).name).is_file()
    maps = config_maps()
    mounted = mounts(containers["serving"], manifests)
    for name, value in flags_of(containers["serving"]["args"]).items():
        if name.endswith("_file"):
            assert Path(value).name in maps[mounted[str(Path(value).parent)]["configMap"]["name"]]
    for mount in mounted.values():
        if "configMap" in mount:
            assert mount["configMap"]["name"] in maps
    assert (
        mounted["/models"]["persistentVolumeClaim"]["claimName"]
        == (manifests["PersistentVolumeClaim"]["metadata"]["name"])
    )


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


def test_compose_gives_its_containers_no_more_than_they_need(compose):
    assert compose.keys() == {"name", "services", "networks"}
    allowed = {
        *("image", "entrypoint", "command", "user", "read_only", "cap_drop", "security_opt", "tmpfs"),
        *("volumes", "ports", "depends_on", "deploy", "healthcheck", "restart", "networks"),
    }
    for service in compose["services"].values():
        assert service.keys() <= allowed
        assert int(service["user"].split(":")[0]) > 0 and service["read_only"] is True
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
        assert all(volume.endswith(":ro") for volume in service["volumes"])
        assert service["restart"] == "unless-stopped" and service["healthcheck"]["test"][0] == "CMD"


def test_compose_lets_nobody_reach_the_server_itself(compose):
    serving, nginx = compose["services"]["serving"], compose["services"]["nginx"]
    assert "ports" not in serving and list(serving["networks"]) == ["back"]
    assert compose["networks"]["back"]["internal"] is True and nginx["networks"] == ["back", "front"]
    assert nginx["depends_on"] == {"serving": {"condition": "service_healthy"}}
    for port in nginx["ports"]:
        host, outside, inside = port.split(":")
        assert host == "127.0.0.1" and outside == inside and int(inside) in listens()
    address = serving["networks"]["back"]["ipv4_address"].rsplit(".", 1)[0]
    assert compose["networks"]["back"]["ipam"]["config"][0]["subnet"].startswith(address)


def test_no_file_is_larger_than_the_temporary_space_of_nginx(compose):
    limit = re.search(r"client_max_body_size\s+(\d+)m;", text("nginx.conf"))
    size = re.search(r"/var/cache/nginx:size=(\d+)m", compose["services"]["nginx"]["tmpfs"][0])
    assert limit and size and int(size[1]) >= 4 * int(limit[1])


# -- Kubernetes ---------------------------------------------------------------------------------------------

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
            problem
            for key in value
            if key in known
            for problem in problems(value[key], known[key], f"{where}.{key}")
        ]
    if isinstance(schema, list) and len(schema) == 1 and isinstance(schema[0], type | dict):
        if not isinstance(value, list) or not value:
            return [f"{where}: {value!r} is no list"]
        return [
            problem
            for i, entry in enumerate(value)
            for problem in problems(entry, schema[0], f"{where}[{i}]")
        ]
    return [] if type(value) is type(schema) and value == schema else [f"{where}: {value!r}, not {schema!r}"]


def test_every_field_is_one_of_kubernetes_own(manifests):
    assert manifests.keys() == SPECS.keys()
    for kind, manifest in manifests.items():
        version, spec = SPECS[kind]
        metadata = {"name": str, "labels": {"app": str}}
        schema = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        assert problems(manifest, schema, kind) == []


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


# -- readiness ----------------------------------------------------------------------------------------------


class Status(http.server.BaseHTTPRequestHandler):
    """Answers as TensorFlow Serving does, with the state that the model's name says."""

    def do_GET(self) -> None:
        state = self.path.removeprefix("/v1/models/").upper()
        body = '{"error": "Could not find any versions of model"}'
        if known := state in ("AVAILABLE", "LOADING", "END"):
            body = (
                '{\n "model_version_status": [\n  {\n   "version": "1",\n'
                f'   "state": "{state}",\n   "status": {{\n    "error_code": "OK",\n    "error_message": ""\n'
                "   }\n  }\n ]\n}\n"
            )
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def status_port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Status) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server.server_port
        server.shutdown()


def checks(compose: dict, containers: dict) -> list[list[str]]:
    serving = containers["serving"]
    return [
        compose["services"]["serving"]["healthcheck"]["test"][1:],
        serving["readinessProbe"]["exec"]["command"],
        serving["startupProbe"]["exec"]["command"],
    ]


def test_readiness_is_asked_with_the_script_of_this_folder(compose, containers):
    compose_check, *kubernetes_checks = checks(compose, containers)
    assert compose_check == ["bash", "/models/ready.sh", MODEL]
    for check in kubernetes_checks:
        assert check == ["bash", "/config/serving/ready.sh", MODEL]
    assert "ready.sh" in config_maps()["vsemb-serving"]
    assert f"REST_PORT:-{REST}" in text("ready.sh") and os.access(FOLDER / "ready.sh", os.X_OK)


@pytest.mark.parametrize(
    ("names", "ready"),
    [
        (["available"], True),
        (["available", "available"], True),
        (["loading"], False),
        (["end"], False),
        (["unknown"], False),
        (["available", "loading"], False),
        (["loading", "available"], False),
        ([], False),
    ],
)
def test_ready_means_available(names, ready, status_port):
    status = ready_status(names, status_port)
    assert (status == 0) is ready


def ready_status(names: list[str], port: int) -> int:
    command = ["bash", str(FOLDER / "ready.sh"), *names]
    environment = {**os.environ, "REST_PORT": str(port)}
    return subprocess.run(command, env=environment, capture_output=True, timeout=30).returncode


def test_not_ready_where_nothing_listens(status_port):
    with http.server.HTTPServer(("127.0.0.1", 0), Status) as unused:
        port = unused.server_port
    assert ready_status(["available"], port) != 0


# -- nginx --------------------------------------------------------------------------------------------------


def listens() -> list[int]:
    return [int(port) for port in re.findall(r"listen (\d+);", text("nginx.conf"))]


def test_nginx_conf_is_well_formed():
    bare = re.sub(r"#[^\n]*", "", text("nginx.conf"))
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "x", bare)
    assert bare.count("{") == bare.count("}") > 10
    statements = re.split(r"[;{}]", bare)
    # A directive without its semicolon would swallow the next line.
    assert not [statement for statement in statements if "\n" in statement.strip()]
    assert "server serving:8501;" in bare and "server serving:8500;" in bare


def test_nginx_is_found_under_the_name_that_it_calls(compose, manifests):
    aliases = manifests["Deployment"]["spec"]["template"]["spec"]["hostAliases"]
    assert aliases[0]["hostnames"] == ["serving"] and "serving" in compose["services"]


@pytest.fixture(scope="module")
def nginx(tmp_path_factory, status_port):
    """nginx with this configuration before a small server; the ports of REST, gRPC and metrics."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("nginx")
    config = text("nginx.conf").replace("/var/cache/nginx", str(folder))
    config = config.replace("serving:8501", f"127.0.0.1:{status_port}").replace("serving:8500", "127.0.0.1:1")
    # A free port may be taken by another before nginx takes it; a socket in a folder cannot.
    for port in listens():
        config = config.replace(f"listen {port};", f"listen unix:{folder}/{port};")
    version = subprocess.run([program, "-v"], capture_output=True, text=True, timeout=30).stderr
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < (1, 25, 1):
        # Until then it was an argument of `listen`.
        config = config.replace("/9000;", "/9000 http2;").replace("http2 on;", "")
    if os.geteuid() == 0:
        # Its workers would be another user, who may not enter this folder.
        config = f"user root;\n{config}"
    (folder / "nginx.conf").write_text(config)
    command = [program, "-e", "stderr", "-c", str(folder / "nginx.conf")]
    tried = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=30)
    assert tried.returncode == 0 and "warn" not in tried.stderr, tried.stderr
    log = (folder / "log").open("wb")
    running = subprocess.Popen([*command, "-g", "daemon off;"], stdout=log, stderr=log)
    try:
        for _ in range(1000):
            if (folder / "8081").exists() or running.poll() is not None:
                break
            threading.Event().wait(0.01)
        assert running.poll() is None, (folder / "log").read_text()
        yield folder
    finally:
        running.terminate()
        running.wait(30)
        log.close()


def through_nginx(folder: Path, port: int, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
    import http.client
    import socket

    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(folder / str(port)))
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1/models/available", 200, '"state": "AVAILABLE"'),
        ("GET", "/v1/models/unknown", 404, "Could not find any versions"),
        ("GET", "/v1/models/available/versions/1/metadata", 404, "Could not find"),
        ("POST", "/v1/models/available:predict", 501, ""),
        ("POST", "/v1/models/available/labels/stable:predict", 501, ""),
        ("GET", "/v1/models/available:predict", 405, '{"error": "Method not allowed'),
        ("POST", "/v1/models/available", 405, '{"error": "Method not allowed'),
        ("DELETE", "/v1/models/available", 405, '{"error": "Method not allowed'),
        ("POST", "/v1/models/available:classify", 404, '{"error": "Not found'),
        ("GET", "/v1/models/a/b", 404, '{"error": "Not found'),
        ("GET", "/monitoring/prometheus/metrics", 404, '{"error": "Not found'),
        ("GET", "/", 404, '{"error": "Not found'),
        ("GET", "/healthz", 200, "ok"),
    ],
)
def test_nginx_lets_through_what_is_asked_of_a_model(method, path, status, says, nginx):
    got, body = through_nginx(nginx, 8080, method, path)
    assert got == status and says in body


def test_nginx_refuses_large_bodies_and_serves_metrics_elsewhere(nginx):
    status, body = through_nginx(nginx, 8080, "POST", "/v1/models/a:predict", bytes(33 * 2**20))
    assert status == 413 and body.startswith('{"error": "The request is larger')
    assert through_nginx(nginx, 8080, "POST", "/v1/models/a:predict", bytes(2**20))[0] == 501
    # The small server has none; nginx's own answer would be the other 404.
    assert "Could not find" in through_nginx(nginx, 8081, "GET", "/monitoring/prometheus/metrics")[1]
    assert "Could not find" not in through_nginx(nginx, 8081, "GET", "/v1/models/available")[1]


# -- README -------------------------------------------------------------------------------------------------


def test_the_readme_shows_commands_and_files_that_exist():
    from vsemb.cli.__main__ import command_parser

    readme = text("README.md")
    commands = re.findall(r"^vsemb (\w+) ([^\n]*)$", readme, flags=re.MULTILINE)
    assert [name for name, _ in commands] == ["export", "verify", "serve"]
    for name, arguments in commands:
        command_parser(name).parse_args(arguments.split())
    mentioned = set(re.findall(r"`([\w]+\.(?:config|conf|yaml|sh))`", readme))
    present = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert mentioned == present - {"README.md"}
    for code in re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL):
        compile(code, "README.md", "exec")
