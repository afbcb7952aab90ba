"""Light checks of the links while a run uses them: losses counted against losses asked for. Pure.

Nothing is sent; the packets of the run are the probes, and netem.losses says what a count can tell. A look is taken
every few seconds at all links. `CHANCE` is shared by the links of a look, so that a run on links as asked is seldom
called astray however many they are and however long it lasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netem.losses import Losses
from orchestrator.fabric.base import LinkRow

EVENT = "links looked at"
CHANCE = 1e-5  # that one look at links as asked calls one of them astray
MOST = 20  # links astray that are told one by one


def look(rows: Sequence[LinkRow], classes: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """What the counters of all links say now: the event's data.

    links, packets   directions that were used, and what they carried
    told             of them, those on which enough was carried to say something
    astray           links that did not lose what was asked of them, as `_told` gives them; at most MOST
    astray_count     how many there are
    classes          the same for each class of links, all of its links together
    """
    used = {(str(row["source"]), str(row["target"])): losses for row in rows if (losses := losses_of(row)).packets}
    chance = CHANCE / max(1, len(used))
    together: dict[str, tuple[int, Losses]] = {}
    for pair, losses in used.items():
        number, before = together.get(classes[pair], (0, Losses(0, 0, 0.0, 0.0)))
        together[classes[pair]] = number + 1, before.plus(losses)
    astray = [pair for pair, losses in used.items() if not losses.as_asked(chance)]
    return {
        "links": len(used),
        "packets": sum(losses.packets for losses in used.values()),
        "told": sum(losses.tells(chance) for losses in used.values()),
        "astray_count": len(astray),
        "astray": [{"link": " → ".join(pair), **_told(used[pair], chance)} for pair in astray[:MOST]],
        "classes": [
            {"class": name, "links": number, **_told(losses, chance)}
            for name, (number, losses) in sorted(together.items())
        ],
    }


def losses_of(row: LinkRow) -> Losses:
    """The losses in an engine's counters of a link; none where the engine does not say what was asked."""
    return Losses(
        int(row.get("drawn", 0)),
        int(row["lost"]),
        float(row.get("asked_lost", 0.0)),
        float(row.get("asked_variance", 0.0)),
        bool(row.get("others_too", 0)),
    )


def _told(losses: Losses, chance: float) -> dict[str, Any]:
    """Fractions asked, measured and accepted; ``high`` is None where a full buffer may have dropped packets too."""
    low, high = (count / losses.packets for count in losses.accepted(chance))
    verdict = "fail" if not losses.as_asked(chance) else "pass" if losses.tells(chance) else "unknown"
    return {
        "packets": losses.packets,
        "lost": losses.lost,
        "asked": losses.asked / losses.packets,
        "measured": losses.lost / losses.packets,
        "low": low,
        "high": None if losses.others_too else high,
        "verdict": verdict,
    }
