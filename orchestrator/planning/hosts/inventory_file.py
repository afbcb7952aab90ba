"""The inventory in a file, as `orchestrator.planning.hosts.inventory` describes it."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.errors import InventoryError
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.scenario.language.files import text_of

LONGEST = 16_000_000  # characters; the underlay between 300 hosts takes about 10 million


def read_inventory(file: Path) -> Inventory:
    """Read the inventory. Raises InventoryError: what is wrong in which file, where, and what would be right."""
    try:
        return Inventory.from_json(json.loads(text_of(file, LONGEST, f"it has more than {LONGEST:,} characters")))
    except InventoryError as error:
        raise InventoryError(f"{file}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InventoryError(f"{file}: cannot be read as the JSON of an inventory: {error}") from None
