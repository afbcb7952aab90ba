"""The layout of nodes and links in the report's picture: tiers as rows, each parent above its children.

It computes geometry and texts, which topology.html draws as SVG, and the course of nodes and links over the run, which
script/topology.js shows at any moment of it.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from netem.errors import NetemError
from netem.profile import LinkProfile
from orchestrator import text
from orchestrator.record.rows import LinkCounters
from orchestrator.record.words import POPULATION
from orchestrator.report.figures import FAULTS, link_colour
from orchestrator.report.media import media_rows
from orchestrator.report.template import fragment, style
from orchestrator.results.history import History
from orchestrator.results.presence import moves
from orchestrator.results.traffic import volumes
from orchestrator.scenario.sections.drivers import LinkKind

WIDTH = 1120.0
MARGIN = 28.0
ARC = 62.0  # height of the highest arc between nodes of a row
LABELLED = 26.0  # minimum distance of neighbours for labels
APART = 24.0  # distance of media one below the other
TIERS = ("cloud", "edge", "device")
Place = tuple[float, float]
LARGEST = {"cloud": 17.0, "edge": 14.0, "device": 11.0}  # half the size of a node in px


@dataclass(frozen=True)
class Dot:
    """A node in the picture. ``mark`` is the colour of the ring that marks faults, or empty."""

    name: str
    tier: str
    x: float
    y: float
    size: float
    label: str
    beside: bool  # the label is beside the node, not below it
    mark: str
    faults: int
    state: str
    about: tuple[str, ...]

    @property
    def hover(self) -> str:
        return "\n".join((self.name, *self.about))


@dataclass(frozen=True)
class LinkLine:
    """A link in the picture, for both directions. ``special``: its profile differs from the usual one of its class."""

    path: str
    ends: tuple[str, str]
    colour: str
    special: bool
    hover: str


@dataclass(frozen=True)
class MediumMark:
    """A shared medium in the picture: a label through which its links pass."""

    name: str
    x: float
    y: float
    channels: tuple[str, ...]
    hover: str

    @property
    def width(self) -> float:
        return 7.0 * len(self.name) + 14


@dataclass(frozen=True)
class ClassNote:
    """One entry of the legend: the usual profile of the links of a class and kind, and their number."""

    name: str
    colour: str
    kind: LinkKind
    profile: str
    links: int


@dataclass(frozen=True)
class Picture:
    width: float
    height: float
    dots: tuple[Dot, ...]
    lines: tuple[LinkLine, ...]
    classes: tuple[ClassNote, ...]
    tiers: Mapping[str, int]
    media: tuple[MediumMark, ...] = ()

    @property
    def alt(self) -> str:
        """The picture in words. The table of nodes below it says the rest."""
        nodes = ", ".join(text.count(number, tier) for tier, number in self.tiers.items())
        links = ", ".join(f"{note.links} {note.name}" for note in self.classes)
        media = f"; shared media: {', '.join(each.name for each in self.media)}" if self.media else ""
        hit = sum(1 for dot in self.dots if dot.faults)
        return f"{nodes}; links: {links or 'none'}{media}; {text.count(hit, 'node')} hit by faults"


def picture(history: History) -> Picture:
    """The topology of a run, with the faults and states of its nodes and the traffic of its links."""
    places, sizes, height = _places(history.nodes)
    usual = _usual_profiles(history.plan.get("links", []))
    between = _between(history, places)
    return Picture(
        width=WIDTH,
        height=height,
        dots=tuple(_dots(history, places, sizes)),
        lines=tuple(_lines(history, places, between, usual)),
        classes=tuple(_classes(history)),
        tiers=history.nodes_by_tier,
        media=tuple(_media(history, between)),
    )


def drawing(history: History) -> str:
    """The picture as one SVG that works without the page: with the style of a light page, which applies to it only."""
    svg = fragment("report/picture.html", picture=picture(history))
    variables = style().split("@media", 1)[0]
    rules = style().splitlines()
    own = [rule for rule in rules if rule.startswith((".topology", "[data-state"))]
    scoped = "\n".join(rule if rule.startswith(".topology") else f".topology {rule}" for rule in own)
    sheet = f"<style>\n{variables.replace(':root', '.topology')}\n{scoped}\n.topology {{ background: #fff; }}\n</style>"
    head, end, body = svg.partition(">")
    return f"{head}{end}\n{sheet}{body}"


def describe(profile: Mapping[str, Any]) -> str:
    """A link profile of plan.json in words; empty if another version wrote it."""
    try:
        return LinkProfile.from_mapping(profile).describe()
    except NetemError:
        return ""


def _places(nodes: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Place], dict[str, float], float]:
    """(centre of each node, pitch of each tier, height of the picture)."""
    tiers = [tier for tier in TIERS if any(node["tier"] == tier for node in nodes.values())]
    places: dict[str, Place] = {}
    pitches: dict[str, float] = {}
    if tiers:
        linked = any(node.get("neighbours") for node in nodes.values() if node["tier"] == tiers[0])
    else:
        linked = False
    y = MARGIN + (ARC - 20 if linked else 20)
    for tier in tiers:
        members = [name for name, node in nodes.items() if node["tier"] == tier]
        blocks = _blocks(members, nodes, places)
        pitch = _pitch(blocks, leaves=not any(nodes[name].get("children") for name in members))
        row_height = pitch if pitch < LABELLED else pitch + 14
        lowest = y
        for left, width, names in blocks:
            columns = max(1, min(len(names), int(width / pitch + 0.01)))
            for index, name in enumerate(names):
                row, column = divmod(index, columns)
                in_row = min(columns, len(names) - row * columns)
                x = left + width / 2 + (column - (in_row - 1) / 2) * pitch
                places[name] = (x, y + row * row_height)
                lowest = max(lowest, y + row * row_height)
        pitches[tier] = pitch
        y = lowest + (120 if tier == "cloud" else 130)
    return places, pitches, (y - 130 if places else 0.0) + MARGIN + 46


def _blocks(
    members: Sequence[str], nodes: Mapping[str, Mapping[str, Any]], places: Mapping[str, Place]
) -> list[tuple[float, float, list[str]]]:
    """A tier's nodes grouped by parent as (left, width, names), with the parents from left to right."""
    by_parent: defaultdict[str | None, list[str]] = defaultdict(list)
    for name in members:
        parent = nodes[name].get("parent")
        by_parent[parent if parent in places else None].append(name)
    parents = sorted(by_parent, key=lambda parent: places[parent][0] if parent else -1.0)
    width = (WIDTH - 2 * MARGIN) / len(parents)
    return [(MARGIN + index * width, width, by_parent[parent]) for index, parent in enumerate(parents)]


def _pitch(blocks: Sequence[tuple[float, float, list[str]]], *, leaves: bool) -> float:
    """The distance of neighbours at which the fullest block has at most about four rows. A tier with children spreads
    over the whole width, so that each node is above its own children."""
    width = min(width for _, width, _ in blocks)
    fullest = max(len(names) for _, _, names in blocks)
    if leaves and fullest * 60 > width:
        columns = max(1, math.ceil(fullest / 4))
    else:
        columns = fullest
    return max(9.0, min(90.0 if leaves else WIDTH, width / columns))


def _dots(history: History, places: Mapping[str, Place], pitches: Mapping[str, float]) -> list[Dot]:
    states = history.current_states()
    faults: defaultdict[str, list[str]] = defaultdict(list)
    for span in history.faults():
        for touched in span.nodes if span.start is not None else ():
            faults[touched].append(span.action)
    moved: defaultdict[str, list[str]] = defaultdict(list)
    for move in moves(history):
        moved[move.node].append(move.target)
    dots = []
    for name, node in history.nodes.items():
        tier = node["tier"]
        (x, y) = places[name]
        counted = Counter(faults[name])
        worst = next((action for action in FAULTS if action in counted), None)
        state = states[name].state
        texts = [(node.get("hardware") or {}).get("name", ""), state]
        texts += [f"on {', then on '.join((node['host'], *moved[name]))}"] if node.get("host") else []
        texts += [f"trains on {node['device']}"] if node.get("device") else []
        texts += [text.count(node["samples"], "sample")] if node.get("samples") else []
        texts += [f"{action} {number}×" for action, number in counted.items()]
        size = min(LARGEST[tier], 0.36 * pitches[tier])
        label = _label(name, tier, pitches[tier])
        dots.append(
            Dot(
                name=name,
                tier=tier,
                x=round(x, 1),
                y=round(y, 1),
                size=round(size, 1),
                label=label,
                beside=bool(node.get("children")) and pitches[tier] > 4 * size + 7 * len(label),
                mark=FAULTS[worst] if worst else "",
                faults=counted.total(),
                state=state,
                about=tuple(part for part in texts if part),
            )
        )
    return dots


def _label(name: str, tier: str, pitch: float) -> str:
    """The whole name if there is room for it; else the part without the tier, or an empty text."""
    if pitch >= 7 * len(name):
        return name
    short = name.removeprefix(f"{tier}-")
    if pitch >= max(LABELLED, 7 * len(short) + 4):
        return short
    return ""


def _crossed(link: Mapping[str, Any]) -> list[str]:
    """The media that a link crosses, in order."""
    return [channel.removesuffix(" up").removesuffix(" down") for channel, _ in link.get("crossings", ())]


def _between(history: History, places: Mapping[str, Place]) -> dict[str, Place]:
    """The centre of each shared medium: above the mean of its links. One that no link crosses is at the left, and those
    of a population's clients are above it. Media of about one height are moved apart."""
    points: dict[str, list[Place]] = {medium["name"]: [] for medium in history.plan.get("media", ())}
    if not points:
        return {}
    tiers = {name: node["tier"] for name, node in history.nodes.items()}
    tops = {tier: min(y for name, (_, y) in places.items() if tiers[name] == tier) for tier in set(tiers.values())}
    for link in history.plan["links"]:
        (x1, x2), (y1, y2) = zip(
            *((places[end][0], tops[tiers[end]]) for end in (link["source"], link["target"])), strict=True
        )
        crossed = _crossed(link)
        for number, name in enumerate(crossed, start=1):
            part = number / (len(crossed) + 1)
            points[name].append((x1 + part * (x2 - x1), y1 + part * (y2 - y1) - (40 if y1 == y2 else 0)))
    outside = places.get(POPULATION, (MARGIN + 30, 0.0))[0], max(tops.values()) - 65
    means = {name: tuple(map(fmean, zip(*of, strict=True))) if of else outside for name, of in points.items()}
    rows: list[dict[str, Place]] = []
    for name, (x, y) in sorted(means.items(), key=lambda each: each[1][::-1]):
        if not rows or y - next(reversed(rows[-1].values()))[1] >= APART:
            rows.append({})
        rows[-1][name] = (x, y)
    return {name: place for row in rows for name, place in _apart(row).items()}


def _apart(row: Mapping[str, Place]) -> dict[str, Place]:
    """The media of a row beside each other, within the picture; one below the other where there is no room."""
    names = sorted(row, key=row.__getitem__)
    rooms = [8.0 * len(name) + 24 for name in names]
    lines = math.ceil(sum(rooms) / (WIDTH - 2 * MARGIN))
    if lines > 1:
        pitch = (WIDTH - 2 * MARGIN) / len(names)
        return {
            name: (MARGIN + (index + 0.5) * pitch, row[name][1] + (index % lines - (lines - 1) / 2) * APART)
            for index, name in enumerate(names)
        }
    found = []
    left = MARGIN
    for name, room in zip(names, rooms, strict=True):
        found.append(max(row[name][0], left + room / 2))
        left = found[-1] + room / 2
    right = WIDTH - MARGIN
    for index, room in reversed(list(enumerate(rooms))):
        found[index] = min(found[index], right - room / 2)
        right = found[index] - room / 2
    return {name: (x, row[name][1]) for name, x in zip(names, found, strict=True)}


def _media(history: History, between: Mapping[str, Place]) -> Iterator[MediumMark]:
    if between:
        rows = {row["channel"]: row for row in media_rows(history)}
    else:
        rows = {}
    for medium in history.plan.get("media", ()):
        name = medium["name"]
        (x, y) = between[medium["name"]]
        texts = [f"{name}: {text.some(medium['members'], 6) or 'no member at first'}"]
        for channel in medium["channels"]:
            row = rows[channel]
            texts.append(f"{channel}: {row['rule']}, {row['rate']}, busy {row['mean']}, at most {row['most']}")
        yield MediumMark(name, round(x, 1), round(y, 1), tuple(medium["channels"]), "\n".join(texts))


def _lines(
    history: History,
    places: Mapping[str, Place],
    between: Mapping[str, Place],
    usual: Mapping[str, Mapping[str, Any]],
) -> list[LinkLine]:
    totals = {(row.source, row.target): row for row in volumes.link_counters(history)}
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for link in history.plan.get("links", []):
        ends = sorted((link["source"], link["target"]))
        pairs.setdefault((ends[0], ends[1]), []).append(link)
    lines = []
    for (one, other), links in pairs.items():
        if one in places and other in places:
            link_class = links[0]["link_class"]
            texts = [f"{one} – {other} ({link_class})", *(_direction(history, link, totals) for link in links)]
            lines.append(
                LinkLine(
                    path=_path(places[one], places[other], [between[name] for name in _crossed(links[0])]),
                    ends=(one, other),
                    colour=link_colour(link_class),
                    special=any(link["profile"] != usual[link_class] for link in links),
                    hover="\n".join(texts),
                )
            )
    return lines


def _direction(history: History, link: Mapping[str, Any], totals: Mapping[tuple[str, str], LinkCounters]) -> str:
    row = totals.get((link["source"], link["target"]))
    delivered = f"; {text.size(row.delivered_bytes)} delivered" if row else ""
    kind = history.link_kinds[link["source"], link["target"]]
    over = "".join(f", over {channel}" for channel, _ in link.get("crossings", ()))
    return f"→ {link['target']}: {kind}, {describe(link['profile'])}{over}{delivered}"


def _path(one: Place, other: Place, through: Sequence[Place] = ()) -> str:
    """An SVG path: a curve between rows, through shared media, or an arc above the row between nodes of one row."""
    level = one[1] == other[1]
    (x1, y1), *rest = sorted((one, other, *through), key=lambda place: place if level else place[::-1])
    if level and not through:
        ((x2, y2),) = rest
        lift = min(ARC, 20 + abs(x2 - x1) * 0.09)
        return f"M{x1:.1f} {y1:.1f} Q{(x1 + x2) / 2:.1f} {y1 - 2 * lift:.1f} {x2:.1f} {y2:.1f}"
    path = f"M{x1:.1f} {y1:.1f}"
    for x2, y2 in rest:
        middle = (y1 + y2) / 2
        path += f" C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
        x1 = x2
        y1 = y2
    return path


def _classes(history: History) -> Iterator[ClassNote]:
    by_kind: defaultdict[tuple[str, LinkKind], list[Mapping[str, Any]]] = defaultdict(list)
    for link in history.plan.get("links", []):
        by_kind[link["link_class"], history.link_kinds[link["source"], link["target"]]].append(link)
    for (name, kind), links in by_kind.items():
        profile = describe(_usual_profiles(links)[name])
        pairs = {frozenset((link["source"], link["target"])) for link in links}
        yield ClassNote(name, link_colour(name), kind, profile, len(pairs))


def _usual_profiles(links: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The most frequent profile of each link class."""
    by_class: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for link in links:
        by_class[link["link_class"]].append(link["profile"])
    usual = {}
    for name, profiles in by_class.items():
        counted = Counter(json.dumps(profile, sort_keys=True) for profile in profiles)
        usual[name] = json.loads(counted.most_common(1)[0][0])
    return usual
