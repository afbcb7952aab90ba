"""Which host lacks which image, and from where it gets it. Attributes are as the Engine gives them, shortened."""

from __future__ import annotations

from typing import Any

import pytest

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.node_image import PROTOCOL_LABEL, describe_image, identity
from orchestrator.drivers.swarm.images import (
    Archive,
    Delivery,
    Pinned,
    Source,
    archive,
    archive_of_program,
    deliveries,
    is_in_registry,
    names_of,
    pinned,
    split,
)
from orchestrator.errors import HostError
from tests.texts import containing

GB = 1_000_000_000
NAME = "edgebed-node"


def image(architecture: str = "amd64", layer: str = "a", **others: Any) -> dict[str, Any]:
    return {
        "Id": f"sha256:{architecture}-{layer}",
        "Architecture": architecture,
        "Created": "2026-01-01T00:00:00.5Z",
        "Size": GB,
        "RootFS": {"Type": "layers", "Layers": [layer]},
        "Config": {"Labels": {PROTOCOL_LABEL: str(PROTOCOL)}, "User": "1000:1000"},
        **others,
    }


def source(its: dict[str, Any]) -> Archive:
    return Archive(its["Id"], identity(its), GB)


PINNED = Pinned("registry:5000/node", "sha256:abc", ("amd64", "arm64"))
PC, PI = image(), image("arm64")


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("edgebed-node", False),
        ("edgebed-node:1", False),
        ("someone/edgebed-node", False),
        ("registry.example/edgebed-node", True),
        ("registry:5000/edgebed-node:1", True),
        ("localhost/edgebed-node", True),
    ],
)
def test_a_name_says_whether_its_image_is_in_a_registry(name: str, there: bool) -> None:
    assert is_in_registry(name) is there


def test_the_parts_of_a_name() -> None:
    assert split("r:5000/a") == ("r:5000/a", "")
    assert split("r:5000/a:1") == ("r:5000/a", "1")
    assert split("r:5000/a@sha256:0") == ("r:5000/a", "sha256:0")
    assert names_of("edgebed-node", "arm64") == ("edgebed-node", "edgebed-node:arm64")
    assert names_of("mine:2", "arm64") == ("mine:2", "mine:2-arm64")
    assert set(names_of("mine@sha256:0", "arm64")) == {"mine@sha256:0"}


def test_an_image_is_the_same_for_engines_that_give_it_other_ids_and_leave_out_what_is_empty() -> None:
    config = PC["Config"] | {"Cmd": None, "Env": [], "Image": "sha256:made-from"}
    assert identity(PC) == identity(PC | {"Id": "sha256:manifest", "Size": 7, "Config": config, "RepoTags": ["x"]})
    others = [image(layer="b"), PI, PC | {"Created": "2027"}, PC | {"Config": PC["Config"] | {"User": "0"}}]
    assert len({identity(each) for each in (PC, *others)}) == 5


def test_the_orchestrators_engine_has_an_image_for_each_architecture() -> None:
    both = {NAME: PC, f"{NAME}:amd64": PC, f"{NAME}:arm64": PI}
    assert archive(NAME, "amd64", both, given=False) == source(PC)
    assert archive(NAME, "arm64", both, given=False) == source(PI)
    assert archive(NAME, "arm64", both, given=True) == source(PI)


def test_an_image_that_the_orchestrators_engine_has_not() -> None:
    alone = {NAME: PC, f"{NAME}:arm64": None, "mine:2": None, "mine:2-amd64": None}
    error = archive(NAME, "arm64", alone, given=False)
    assert isinstance(error, HostError)
    assert error.what == containing("has none for arm64", "'edgebed-node'")
    assert error.commands == ("images/build.sh arm64",)
    error = archive("mine:2", "amd64", alone, given=False)
    assert isinstance(error, HostError)
    assert error.commands == ("docker build --platform linux/amd64 --file images/node/Dockerfile --tag mine:2-amd64 .",)


def test_an_image_with_a_program_needs_no_label_and_is_never_emulated() -> None:
    bare = PC | {"Config": None}
    both = {"broker:2": bare, "broker:2-amd64": None, "broker:2-arm64": None}
    assert archive_of_program("broker:2", "amd64", both) == source(bare)
    error = archive_of_program("broker:2", "arm64", both)
    assert isinstance(error, HostError)
    assert error.what == containing("has none for arm64", "'broker:2'")
    assert error.commands == ("docker pull --platform linux/arm64 broker:2", "docker tag broker:2 broker:2-arm64")
    assert describe_image(bare) == {
        "Architecture": "amd64",
        "Config": {"Labels": {}},
        "RepoDigests": [],
        "identity": identity(bare),
    }


def test_nodes_may_be_given_an_image_that_their_host_emulates() -> None:
    assert archive(NAME, "arm64", {NAME: PC, f"{NAME}:arm64": None}, given=True) == source(PC)


def test_an_image_of_another_version_is_not_brought() -> None:
    old = PC | {"Config": {"Labels": {PROTOCOL_LABEL: "0"}}}
    error = archive(NAME, "amd64", {NAME: old, f"{NAME}:amd64": None}, given=False)
    assert isinstance(error, HostError)
    assert "speak protocol 0" in error.what


def test_a_registry_reports_the_digest_and_for_what_the_image_is() -> None:
    platforms = [{"architecture": "arm64", "os": "linux"}, {"architecture": "amd64", "os": "linux"}]
    told = {"Descriptor": {"digest": "sha256:abc", "size": 500}, "Platforms": platforms}
    assert pinned("registry:5000/node:1", told) == PINNED
    assert PINNED.reference == "registry:5000/node@sha256:abc"


HOSTS = {"pc-1": "amd64", "pc-2": "amd64", "pc-3": "amd64", "pi-1": "arm64"}
NONE = HostError("none for arm64 to copy", "build it here", ["images/build.sh arm64"])


def decided(
    has: dict[str, dict[str, Any] | None], sources: dict[str, Source], free: int = 9 * GB, name: str = NAME
) -> list[Delivery]:
    told = {host: {"images": {name: describe_image(its)}, "free": free} for host, its in has.items()}
    return deliveries(told, HOSTS, {(name, architecture): its for architecture, its in sources.items()})


def test_hosts_get_what_they_lack_and_those_of_one_architecture_together() -> None:
    has = {"pc-1": PC, "pc-2": None, "pc-3": image(layer="older"), "pi-1": None}
    sources: dict[str, Source] = {"amd64": source(PC), "arm64": source(PI)}
    assert decided(has, sources) == [
        Delivery(NAME, source(PC), ("pc-2", "pc-3")),
        Delivery(NAME, source(PI), ("pi-1",)),
    ]
    assert decided({"pc-1": PC, "pc-2": PC, "pi-1": PI}, sources) == []


def test_an_image_of_a_registry_is_the_same_by_its_digest() -> None:
    has = {"pc-1": PC | {"RepoDigests": [PINNED.reference]}, "pc-2": PC, "pi-1": None}
    (found,) = decided(has, {"amd64": PINNED, "arm64": PINNED})
    assert found.hosts == ("pc-2", "pi-1")


def test_a_host_keeps_its_own_image_where_there_is_no_source() -> None:
    assert decided({"pc-1": PC, "pi-1": image("arm64", "built there")}, {"amd64": source(PC), "arm64": NONE}) == []


def test_a_host_without_an_image_and_without_a_source() -> None:
    with pytest.raises(HostError) as refused:
        decided({"pc-2": None, "pi-1": None}, {"amd64": source(PC), "arm64": NONE})
    assert refused.value.what == containing("pi-1: no image to make", "arm64")
    assert refused.value.commands == ("images/build.sh arm64",)


def test_a_registry_without_an_image_for_the_host() -> None:
    with pytest.raises(HostError, match=r"registry:5000/node.*for amd64, and pi-1.*arm64"):
        decided({"pi-1": None}, {"arm64": Pinned(PINNED.repository, PINNED.digest, ("amd64",))})


def test_hosts_without_room_are_named_before_anything_is_copied() -> None:
    sources: dict[str, Source] = {"amd64": source(PC), "arm64": NONE}
    with pytest.raises(HostError) as refused:
        decided({"pc-2": None, "pc-3": image(layer="older"), "pi-1": None}, sources, free=GB + GB // 2)
    assert refused.value.what == containing("pi-1: no image to make", "arm64", "pc-2 has 1.5 GB free", "takes 2 GB")
    assert refused.value.commands == ("images/build.sh arm64", "docker system df", "docker system prune")
