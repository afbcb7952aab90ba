"""Notes for the record: facts about a plan that a reader of the results must know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from netem.units import format_size
from orchestrator import text
from orchestrator.planning.learning.memory import FRAMEWORK
from orchestrator.scenario.sections.alternatives import listed
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.drivers import DriverKind

if TYPE_CHECKING:
    from orchestrator.planning.plan import NodePlan

SHOWN_NAMES = 20


def of_data(unheld: Sequence[int], empty: Sequence[str]) -> Iterator[str]:
    """Notes on gaps in the partition: test classes without training samples, and clients without samples."""
    if unheld:
        noun = "class" if len(unheld) == 1 else "classes"
        labels = ", ".join(str(label) for label in unheld)
        yield (
            f"no client holds training samples of {noun} {labels} of the test set: no model can learn to recognise them"
        )
    if empty:
        names = text.some(empty, limit=SHOWN_NAMES)
        if len(empty) == 1:
            yield f"{names} holds no training samples: it does not train and counts in no average"
        else:
            yield f"{names} hold no training samples: they do not train and count in no average"


def of_clients_at_once(clients: int, driver: DriverKind) -> Iterator[str]:
    """A note on batches of clients where each node trains in its own process."""
    if clients > 1 and not driver.simulated:
        yield f"each node trains by itself: only the driver {listed(simulated=True)} trains {clients} clients at once"


def of_mtus(directions: int, driver: DriverKind) -> Iterator[str]:
    """A note on links with an MTU of their own, here so many directions, which a simulation does not model."""
    if directions and driver.simulated:
        links = text.count(directions // 2, "link")
        yield f"the simulation sends packets of 1500 bytes over all links: it does not model the mtu of {links}"


def of_links(links: int, driver: DriverKind) -> Iterator[str]:
    """A note on links that the driver does not shape. ``links``: the number of directions."""
    if links and not driver.shapes_links:
        yield (
            f"the driver {driver.name} does not shape links: the settings of {text.count(links, 'link direction')} are"
            " not applied, and no link is measured"
        )


def of_images(images: Sequence[str], driver: DriverKind) -> Iterator[str]:
    """A note on images that the driver does not use."""
    if images and not driver.images:
        names = ", ".join(images)
        makers = listed(images=True)
        yield f"nodes run this host's Python and not their images ({names}): only the driver {makers} uses images"


def of_memory(
    nodes: Iterable[NodePlan],
    needed: Mapping[str, int],
    driver: DriverKind,
) -> Iterator[str]:
    """Notes on hardware with less memory than training, Python and torch need. ``needed``: bytes for training, by node.
    An accelerator has its own memory."""
    short: dict[tuple[str, int], list[str]] = {}
    for node in nodes:
        memory = node.hardware.memory
        if memory is None or node.device != PROCESSOR or node.name not in needed:
            continue
        if memory < needed[node.name] + FRAMEWORK:
            short.setdefault((node.hardware.name, memory), []).append(node.name)
    for (hardware, memory), names in short.items():
        most = max(needed[name] for name in names)
        if driver.simulated:
            result = "the simulation has no limits of memory"
        elif driver.images or most > memory:
            result = "expect that they run out of memory"
        else:
            result = "here nodes share Python and torch, which do not count"
        yield (
            f"{text.some(names, limit=SHOWN_NAMES)}: training needs about {text.size(most)}, Python and torch"
            f" {text.size(FRAMEWORK)}, and {hardware} has {format_size(memory)}: {result}"
        )


def of_files(clients: Mapping[str, Any]) -> Iterator[str]:
    """Notes on files with settings of single nodes that have more rows than there are nodes."""
    for file in clients.values():
        rows = file["rows"]
        used = file["used"]
        if used < rows:
            name = file.get("csv") or file["trace"]
            yield f"{name} has {rows:,} clients, and the first {used:,} of them are used"
