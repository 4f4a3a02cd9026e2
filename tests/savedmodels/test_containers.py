"""What both ways to run containers have in common, and Docker Compose's own file."""

from __future__ import annotations

import re
from pathlib import Path

from tests.savedmodels.files import (
    FLAGS,
    FOLDER,
    GRPC,
    IMAGES,
    REST,
    config_maps,
    flags_of,
    listens,
    mounts,
    text,
)


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
