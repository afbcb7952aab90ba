"""A fake of the command kubectl, whose cluster is the Docker Engine: the pods of DaemonSets are its containers.

`FAKE_CLUSTER` names a folder: ``nodes.json`` has the nodes, ``words`` the commands, ``created.json`` what was created.
A container gets what a kubelet gives that pod: its user, limits, secret and security context, and an address in the
network `FAKE_NETWORK`. It gets no user namespace of its own (``hostUsers``), and does not restart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.drivers.docker.node_image import ARCHITECTURES
from orchestrator.drivers.kubernetes.reading import quantity

FOLDER = Path(os.environ.get("FAKE_CLUSTER", ""))
LABEL = "org.edgebed.test.run"
PYTHON = str(Path(sys.executable).resolve())


def main(words: list[str]) -> None:
    with (FOLDER / "words").open("a") as file:
        file.write(f"{' '.join(words)}\n")
    match words:
        case ["get", "nodes", *_]:
            print((FOLDER / "nodes.json").read_text())
        case ["get", "pods", selector, *_]:
            print(json.dumps({"items": [pod(each) for each in containers(selector)]}))
        case ["auth", "can-i", *_]:
            print("yes")
        case ["create", "--filename=-"]:
            text = sys.stdin.read()
            (FOLDER / "created.json").write_text(text)
            create(json.loads(text)["items"])
        case ["delete", "daemonsets,secrets", selector, *_]:
            if found := [each["Id"] for each in containers(selector)]:
                docker("stop", *found)
                docker("rm", "--volumes", *found)
            for secret in FOLDER.glob("secret-*/*"):
                secret.unlink()
        case _:
            sys.exit(f"not in this cluster: {words}")


def node(name: str, address: str) -> dict[str, Any]:
    """A node for ``nodes.json``: what edgebed reads of it."""
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "allocatable": {"cpu": "1", "memory": "3Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"architecture": ARCHITECTURES[os.uname().machine]},
        },
    }


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout


def containers(selector: str) -> list[dict[str, Any]]:
    run = selector.removeprefix("--selector=edgebed-run=")
    found = docker("ps", "--all", "--quiet", f"--filter=label={LABEL}={run}").split()
    listed: list[dict[str, Any]] = json.loads(docker("inspect", *found)) if found else []
    return listed


def pod(container: Mapping[str, Any]) -> dict[str, Any]:
    state = container["State"]
    phase = "Running" if state["Running"] else "Failed"
    details = {"running": {}} if state["Running"] else {"terminated": {"reason": f"exit code {state['ExitCode']}"}}
    return {
        "metadata": {"annotations": {"edgebed-host": container["Name"].removeprefix("/pod-")}},
        "status": {"phase": phase, "containerStatuses": [{"state": details}]},
    }


def create(items: list[dict[str, Any]]) -> None:
    secrets = {each["metadata"]["name"]: each["stringData"] for each in items if each["kind"] == "Secret"}
    for item in items:
        if item["kind"] == "DaemonSet":
            template = item["spec"]["template"]
            labels, spec = template["metadata"]["labels"], template["spec"]
            docker("run", "--detach", f"--label={LABEL}={labels['edgebed-run']}", *options(spec, secrets))


def options(spec: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The arguments of `docker run` for a pod."""
    (container,) = spec["containers"]
    user, rights, limits = spec["securityContext"], container["securityContext"], container["resources"]["limits"]
    host = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (name,) = host["nodeSelectorTerms"][0]["matchFields"][0]["values"]
    yield from (f"--name=pod-{name}", f"--hostname={name}", f"--network={os.environ['FAKE_NETWORK']}")
    yield from (f"--user={user['runAsUser']}:{user['runAsGroup']}", f"--cpus={quantity(limits['cpu'])}")
    yield from (f"--memory={limits['memory']}", f"--memory-swap={limits['memory']}")
    yield from (f"--cap-drop={each}" for each in rights["capabilities"]["drop"])
    if user["seccompProfile"]["type"] == "Unconfined":
        yield "--security-opt=seccomp=unconfined"
    if rights["procMount"] == "Unmasked":
        yield "--security-opt=systempaths=unconfined"
    if not rights["allowPrivilegeEscalation"]:
        yield "--security-opt=no-new-privileges"
    if rights["readOnlyRootFilesystem"]:
        yield "--read-only"
    volumes = {each["name"]: each for each in spec["volumes"]}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        folder = FOLDER / f"{mount['name']}-{name}"
        folder.mkdir()
        os.chown(folder, user["runAsUser"], user["fsGroup"])
        if "secret" in volume:
            for file, content in secrets[volume["secret"]["secretName"]].items():
                path = folder / file
                path.write_text(content)
                os.chown(path, 0, user["fsGroup"])
                path.chmod(volume["secret"]["defaultMode"])
        yield f"--volume={folder}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"
    yield from (f"--env={each['name']}={each['value']}" for each in container["env"])
    yield from (f"--entrypoint={PYTHON}", container["image"], *container["command"][1:])


if __name__ == "__main__":
    main(sys.argv[1:])
