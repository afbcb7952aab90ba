from __future__ import annotations

import json
from pathlib import Path

import kubernetes_validate
import pytest

from node.assignment import Keypair
from node.resources import OF_POD
from orchestrator.drivers.hosts.agents.settings import HOST, Settings
from orchestrator.drivers.kubernetes.manifest import FILES, ON, RUN, SECRET, objects
from orchestrator.planning.hosts.inventory import HostFacts

HOSTS = [
    HostFacts("pi-1.example.org", "10.0.0.7", "arm64", 3.92, 3_500_000_000),
    HostFacts("pc-1", "10.0.0.8", "amd64", 12, 60_000_000_000),
]
LONGEST = f"{'n' * 40}-20261126-171258-ab12"  # 40: `orchestrator.scenario.language.words.LONGEST`
SETTINGS = Settings(
    run=LONGEST, address="tcp://10.1.0.2:4000", server="s", keys=Keypair(public="p", secret="q"), lease=15.0
)
SECRETS, *AGENTS = objects(HOSTS, SETTINGS, "registry/edgebed:2")["items"]


@pytest.mark.parametrize("made", [SECRETS, *AGENTS])
def test_each_object_fits_the_schema_of_the_api(made: dict[str, object]) -> None:
    kubernetes_validate.validate(made, "1.37", strict=True)
    assert len(LONGEST) <= 63  # of a label


def test_an_agent_reads_its_settings_from_the_secret() -> None:
    (content,) = SECRETS["stringData"].values()
    assert Settings.from_json(content) == SETTINGS
    for agent in AGENTS:
        assert '"q"' not in json.dumps(agent)
        pod = agent["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {each["name"]: Path(each["mountPath"]) for each in container["volumeMounts"]}
        assert (mounts["secret"] / next(iter(SECRETS["stringData"])), mounts["files"]) == (SECRET, FILES)
        assert pod["volumes"][0]["secret"]["secretName"] == SECRETS["metadata"]["name"]


def test_each_host_has_one_agent_that_requests_half_of_it_and_may_use_all() -> None:
    assert len({each["metadata"]["name"] for each in AGENTS}) == len(HOSTS)
    written = [("3920m", "1960m", "3"), ("12000m", "6000m", "12")]
    for host, agent, (cores, half, processors) in zip(HOSTS, AGENTS, written, strict=True):
        template = agent["spec"]["template"]
        (container,) = template["spec"]["containers"]
        assert container["resources"] == {
            "requests": {"cpu": half, "memory": str(host.memory // 2)},
            "limits": {"cpu": cores, "memory": str(host.memory)},
        }
        variables = {each["name"]: each["value"] for each in container["env"]}
        assert (variables[HOST], variables[OF_POD]) == (host.name, processors)
        assert (template["metadata"]["annotations"], container["image"]) == ({ON: host.name}, "registry/edgebed:2")
        affinity = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"] == [host.name]


def test_a_daemon_set_selects_its_own_pod_alone() -> None:
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in AGENTS]
    assert [each["spec"]["selector"]["matchLabels"] for each in AGENTS] == labels
    assert labels[0] != labels[1]
    labels += [each["metadata"]["labels"] for each in (SECRETS, *AGENTS)]
    assert {each[RUN] for each in labels} == {LONGEST}
