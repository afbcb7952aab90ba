"""Notes for the record: facts about a plan that a reader of the results must know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import text
from orchestrator.scenario.sections.drivers import DRIVERS, listed

SHOWN_NAMES = 20


def of_data(unheld: Sequence[int], empty: Sequence[str]) -> Iterator[str]:
    """Notes on gaps in the division of the data: test classes without training samples, and clients without samples."""
    if unheld:
        classes = f"{'class' if len(unheld) == 1 else 'classes'} {', '.join(str(label) for label in unheld)}"
        yield f"no client holds training samples of {classes} of the test set: no model can learn to recognise them"
    if empty:
        one = len(empty) == 1
        verb, what = ("holds", "it does not train and counts") if one else ("hold", "they do not train and count")
        yield f"{text.some(empty, limit=SHOWN_NAMES)} {verb} no training samples: {what} in no average"


def of_clients_at_once(clients: int, driver: str) -> Iterator[str]:
    """A note on batches of clients where each node trains in its own process."""
    if clients > 1 and not DRIVERS[driver].simulated:
        yield f"each node trains by itself: only the driver {listed(simulated=True)} trains {clients} clients at once"


def of_images(images: Sequence[str], driver: str) -> Iterator[str]:
    """A note on images that the driver does not use."""
    if images and not DRIVERS[driver].images:
        names, makers = ", ".join(images), listed(images=True)
        yield f"nodes run this host's Python and not their images ({names}): only the driver {makers} uses images"


def of_files(clients: Mapping[str, Any]) -> Iterator[str]:
    """Notes on files with settings of single nodes that have more rows than there are nodes."""
    for each in clients.values():
        if each["used"] < each["rows"]:
            name = each.get("csv") or each["trace"]
            yield f"{name} has {each['rows']:,} clients, and the first {each['used']:,} of them are used"
