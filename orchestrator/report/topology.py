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
from orchestrator.record.rows import POPULATION, LinkCounters
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
ROOM = WIDTH - 2 * MARGIN  # the width for nodes and media
Facts = Mapping[str, Any]  # of a node, a link or its profile in plan.json
Place = tuple[float, float]
Ends = tuple[str, str]  # the nodes of a link
Block = tuple[float, float, list[str]]  # left, width, and the nodes in it
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
    beside: bool  # the label is next to the node, not below it
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
    ends: Ends
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
        tiers = [text.count(number, tier) for tier, number in self.tiers.items()]
        nodes = ", ".join(tiers)
        links = ", ".join(f"{note.links} {note.name}" for note in self.classes)
        names = ", ".join(medium.name for medium in self.media)
        media = f"; shared media: {names}" if names else ""
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
    sheet = style()
    variables = sheet.split("@media", 1)[0].replace(":root", ".topology")
    rules = []
    for rule in sheet.splitlines():
        if rule.startswith(".topology"):
            rules.append(rule)
        elif rule.startswith("[data-state"):
            rules.append(f".topology {rule}")
    own = "\n".join(rules)
    own_sheet = f"<style>\n{variables}\n{own}\n.topology {{ background: #fff; }}\n</style>"
    head, end, body = svg.partition(">")
    return f"{head}{end}\n{own_sheet}{body}"


def describe(profile: Facts) -> str:
    """A link profile of plan.json in words; empty if another version wrote it."""
    try:
        return LinkProfile.from_mapping(profile).describe()
    except NetemError:
        return ""


def _places(
    nodes: Mapping[str, Facts],
) -> tuple[dict[str, Place], dict[str, float], float]:
    """(centre of each node, pitch of each tier, height of the picture)."""
    by_tier: defaultdict[str, list[str]] = defaultdict(list)
    for name, node in nodes.items():
        by_tier[node["tier"]].append(name)
    tiers = [tier for tier in TIERS if tier in by_tier]
    places: dict[str, Place] = {}
    pitches: dict[str, float] = {}
    y = MARGIN + 20
    if tiers and any(nodes[name].get("neighbours") for name in by_tier[tiers[0]]):
        y = MARGIN + (ARC - 20)  # below the arcs between neighbours
    for tier in tiers:
        members = by_tier[tier]
        blocks = _blocks(members, nodes, places)
        has_children = any(nodes[name].get("children") for name in members)
        pitch = _pitch(blocks, leaves=not has_children)
        row_height = pitch if pitch < LABELLED else pitch + 14
        lowest = y
        for block in blocks:
            placed = _in_rows(block, pitch, y, row_height)
            places |= placed
            bottom = max(node_y for _, node_y in placed.values())
            lowest = max(lowest, bottom)
        pitches[tier] = pitch
        y = lowest + (120 if tier == "cloud" else 130)
    end = y - 130 if places else 0.0
    return places, pitches, end + MARGIN + 46


def _in_rows(
    block: Block,
    pitch: float,
    y: float,
    row_height: float,
) -> dict[str, Place]:
    """The nodes of a block in rows from ``y`` downwards, each row in the middle of the block."""
    left, width, names = block
    columns = int(width / pitch + 0.01)
    columns = max(1, min(len(names), columns))
    places = {}
    for index, name in enumerate(names):
        row, column = divmod(index, columns)
        in_row = min(columns, len(names) - row * columns)
        from_middle = column - (in_row - 1) / 2
        x = left + width / 2 + from_middle * pitch
        places[name] = (x, y + row * row_height)
    return places


def _blocks(
    members: Sequence[str],
    nodes: Mapping[str, Facts],
    places: Mapping[str, Place],
) -> list[Block]:
    """A tier's nodes grouped by parent, with the parents from left to right."""
    by_parent: defaultdict[str | None, list[str]] = defaultdict(list)
    for name in members:
        parent = nodes[name].get("parent")
        placed = parent if parent in places else None
        by_parent[placed].append(name)
    parents = sorted(by_parent, key=lambda parent: places[parent][0] if parent else -1.0)
    width = ROOM / len(parents)
    blocks = []
    for index, parent in enumerate(parents):
        left = MARGIN + index * width
        blocks.append((left, width, by_parent[parent]))
    return blocks


def _pitch(blocks: Sequence[Block], *, leaves: bool) -> float:
    """The distance of neighbours at which the fullest block has at most about four rows. A tier with children spreads
    over the whole width, so that each node is above its own children."""
    width = math.inf
    fullest = 0
    for _, block_width, names in blocks:
        width = min(width, block_width)
        fullest = max(fullest, len(names))
    if leaves and fullest * 60 > width:
        columns = max(1, math.ceil(fullest / 4))
    else:
        columns = fullest
    widest = 90.0 if leaves else WIDTH
    pitch = min(widest, width / columns)
    return max(9.0, pitch)


def _dots(
    history: History,
    places: Mapping[str, Place],
    pitches: Mapping[str, float],
) -> list[Dot]:
    states = history.current_states()
    faults: defaultdict[str, list[str]] = defaultdict(list)
    for span in history.faults():
        if span.start is not None:
            for touched in span.nodes:
                faults[touched].append(span.action)
    moved: defaultdict[str, list[str]] = defaultdict(list)
    for move in moves(history):
        moved[move.node].append(move.target)
    dots = []
    for name, node in history.nodes.items():
        tier = node["tier"]
        pitch = pitches[tier]
        x, y = places[name]
        size = min(LARGEST[tier], 0.36 * pitch)
        label = _label(name, tier, pitch)
        has_room = pitch > 4 * size + 7 * len(label)
        counted = Counter(faults[name])
        worst = next((action for action in FAULTS if action in counted), None)
        state = states[name].state
        dot = Dot(
            name=name,
            tier=tier,
            x=round(x, 1),
            y=round(y, 1),
            size=round(size, 1),
            label=label,
            beside=bool(node.get("children")) and has_room,
            mark=FAULTS[worst] if worst else "",
            faults=counted.total(),
            state=state,
            about=_about(node, state, moved[name], counted),
        )
        dots.append(dot)
    return dots


def _about(
    node: Facts,
    state: str,
    moved: Sequence[str],
    faults: Mapping[str, int],
) -> tuple[str, ...]:
    """A node in words, a line each. ``moved``: the hosts that it moved to."""
    hardware = node.get("hardware") or {}
    lines = [hardware.get("name", ""), state]
    if node.get("host"):
        hosts = ", then on ".join((node["host"], *moved))
        lines.append(f"on {hosts}")
    if node.get("device"):
        lines.append(f"trains on {node['device']}")
    if node.get("samples"):
        lines.append(text.count(node["samples"], "sample"))
    for action, number in faults.items():
        lines.append(f"{action} {number}×")
    return tuple(line for line in lines if line)


def _label(name: str, tier: str, pitch: float) -> str:
    """The whole name if there is room for it; else the part without the tier, or an empty text."""
    if pitch >= 7 * len(name):
        return name
    short = name.removeprefix(f"{tier}-")
    needed = max(LABELLED, 7 * len(short) + 4)
    if pitch >= needed:
        return short
    return ""


def _crossed(link: Facts) -> list[str]:
    """The media that a link crosses, in order."""
    media = []
    for channel, _ in link.get("crossings", ()):
        name = channel.removesuffix(" up").removesuffix(" down")
        media.append(name)
    return media


def _between(history: History, places: Mapping[str, Place]) -> dict[str, Place]:
    """The centre of each shared medium: above the mean of its links. One that no link crosses is at the left, and those
    of a population's clients are above it. Media of about one height are moved apart."""
    points: dict[str, list[Place]] = {}  # where the links cross each medium
    for medium in history.plan.get("media", ()):
        points[medium["name"]] = []
    if not points:
        return {}
    tiers = {name: node["tier"] for name, node in history.nodes.items()}
    tops: dict[str, float] = {}
    for name, (_, y) in places.items():
        tier = tiers[name]
        tops[tier] = min(y, tops.get(tier, y))
    for link in history.plan["links"]:
        source = link["source"]
        target = link["target"]
        x1 = places[source][0]
        x2 = places[target][0]
        y1 = tops[tiers[source]]
        y2 = tops[tiers[target]]
        lift = 40 if y1 == y2 else 0
        crossed = _crossed(link)
        for number, name in enumerate(crossed, start=1):
            part = number / (len(crossed) + 1)
            point = (x1 + part * (x2 - x1), y1 + part * (y2 - y1) - lift)
            points[name].append(point)
    outside_x = places.get(POPULATION, (MARGIN + 30, 0.0))[0]
    outside_y = max(tops.values()) - 65
    means = {}
    for name, crossings in points.items():
        if crossings:
            means[name] = _mean(crossings)
        else:
            means[name] = (outside_x, outside_y)
    centres: dict[str, Place] = {}
    for row in _media_in_rows(means):
        centres |= _apart(row)
    return centres


def _mean(points: Sequence[Place]) -> Place:
    x = []
    y = []
    for point in points:
        x.append(point[0])
        y.append(point[1])
    return fmean(x), fmean(y)


def _media_in_rows(centres: Mapping[str, Place]) -> list[dict[str, Place]]:
    """Media from top to bottom. A row ends before the first medium that is clearly lower than the one before it."""
    rows: list[dict[str, Place]] = []
    last_y = -math.inf
    for name in sorted(centres, key=lambda name: centres[name][::-1]):
        x, y = centres[name]
        if not rows or y - last_y >= APART:
            rows.append({})
        rows[-1][name] = (x, y)
        last_y = y
    return rows


def _apart(row: Mapping[str, Place]) -> dict[str, Place]:
    """The media of a row next to each other, within the picture; one below the other if the row is too narrow."""
    names = sorted(row, key=row.__getitem__)
    rooms = [8.0 * len(name) + 24 for name in names]
    lines = math.ceil(sum(rooms) / ROOM)
    if lines > 1:
        return _on_lines(row, names, lines)
    centres = []
    left = MARGIN
    for name, room in zip(names, rooms, strict=True):
        x = max(row[name][0], left + room / 2)
        centres.append(x)
        left = x + room / 2
    right = WIDTH - MARGIN
    for index in reversed(range(len(names))):
        room = rooms[index]
        x = min(centres[index], right - room / 2)
        centres[index] = x
        right = x - room / 2
    places = {}
    for name, x in zip(names, centres, strict=True):
        places[name] = (x, row[name][1])
    return places


def _on_lines(
    row: Mapping[str, Place],
    names: Sequence[str],
    lines: int,
) -> dict[str, Place]:
    """The media of a row at equal distances, in turn on so many lines."""
    pitch = ROOM / len(names)
    places = {}
    for index, name in enumerate(names):
        x = MARGIN + (index + 0.5) * pitch
        from_middle = index % lines - (lines - 1) / 2
        places[name] = (x, row[name][1] + from_middle * APART)
    return places


def _media(history: History, between: Mapping[str, Place]) -> Iterator[MediumMark]:
    if between:
        rows = {row["channel"]: row for row in media_rows(history)}
    else:
        rows = {}
    for medium in history.plan.get("media", ()):
        name = medium["name"]
        x, y = between[name]
        members = text.some(medium["members"], 6) or "no member at first"
        lines = [f"{name}: {members}"]
        for channel in medium["channels"]:
            row = rows[channel]
            lines.append(f"{channel}: {row['rule']}, {row['rate']}, busy {row['mean']}, at most {row['most']}")
        yield MediumMark(
            name=name,
            x=round(x, 1),
            y=round(y, 1),
            channels=tuple(medium["channels"]),
            hover="\n".join(lines),
        )


def _lines(
    history: History,
    places: Mapping[str, Place],
    between: Mapping[str, Place],
    usual: Mapping[str, Facts],
) -> list[LinkLine]:
    totals = {}
    for row in volumes.link_counters(history):
        totals[row.source, row.target] = row
    pairs: dict[Ends, list[Facts]] = {}
    for link in history.plan.get("links", []):
        first, second = sorted((link["source"], link["target"]))
        pairs.setdefault((first, second), []).append(link)
    lines = []
    for (one, other), links in pairs.items():
        if one not in places or other not in places:
            continue
        link_class = links[0]["link_class"]
        through = [between[name] for name in _crossed(links[0])]
        words = [f"{one} – {other} ({link_class})"]
        words += [_direction(history, link, totals) for link in links]
        line = LinkLine(
            path=_path(places[one], places[other], through),
            ends=(one, other),
            colour=link_colour(link_class),
            special=any(link["profile"] != usual[link_class] for link in links),
            hover="\n".join(words),
        )
        lines.append(line)
    return lines


def _direction(history: History, link: Facts, totals: Mapping[Ends, LinkCounters]) -> str:
    ends = (link["source"], link["target"])
    row = totals.get(ends)
    delivered = f"; {text.size(row.delivered_bytes)} delivered" if row else ""
    kind = history.link_kinds[ends]
    profile = describe(link["profile"])
    over = "".join(f", over {channel}" for channel, _ in link.get("crossings", ()))
    return f"→ {link['target']}: {kind}, {profile}{over}{delivered}"


def _path(one: Place, other: Place, through: Sequence[Place] = ()) -> str:
    """An SVG path: a curve between rows, through shared media, or an arc above the row between nodes of one row."""
    level = one[1] == other[1]
    if level and not through:
        return _arc(one, other)
    if level:
        places = sorted((one, other, *through))
    else:
        places = sorted((one, other, *through), key=lambda place: place[::-1])
    x1, y1 = places[0]
    path = f"M{x1:.1f} {y1:.1f}"
    for x2, y2 in places[1:]:
        middle = (y1 + y2) / 2
        path += f" C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
        x1 = x2
        y1 = y2
    return path


def _arc(one: Place, other: Place) -> str:
    left, right = sorted((one, other))
    x1, y1 = left
    x2, y2 = right
    lift = min(ARC, 20 + abs(x2 - x1) * 0.09)
    middle = (x1 + x2) / 2
    highest = y1 - 2 * lift
    return f"M{x1:.1f} {y1:.1f} Q{middle:.1f} {highest:.1f} {x2:.1f} {y2:.1f}"


def _classes(history: History) -> Iterator[ClassNote]:
    by_kind: defaultdict[tuple[str, LinkKind], list[Facts]] = defaultdict(list)
    for link in history.plan.get("links", []):
        kind = history.link_kinds[link["source"], link["target"]]
        by_kind[link["link_class"], kind].append(link)
    for (name, kind), links in by_kind.items():
        usual = _usual_profiles(links)[name]
        pairs = {frozenset((link["source"], link["target"])) for link in links}
        yield ClassNote(name, link_colour(name), kind, describe(usual), len(pairs))


def _usual_profiles(links: Sequence[Facts]) -> dict[str, Facts]:
    """The most frequent profile of each link class."""
    by_class: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for link in links:
        profile = json.dumps(link["profile"], sort_keys=True)
        by_class[link["link_class"]][profile] += 1
    usual = {}
    for name, counted in by_class.items():
        [(most_frequent, _)] = counted.most_common(1)
        usual[name] = json.loads(most_frequent)
    return usual
