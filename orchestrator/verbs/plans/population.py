"""A population in words, for `plan`: what each of its clients draws, and who is selected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from netem.units import format_fraction
from orchestrator.population.population import HardwareShare, LinkShare, Population


def population_entries(population: Population) -> Iterator[tuple[str, str]]:
    """Labels with their texts."""
    description = population.to_json()
    params = ", ".join(
        f"{key} {value}" for key, value in description["selection"]["params"].items() if value is not None
    )
    how = description["selection"]["name"] + (f" ({params})" if params else "")
    asked = f" of {population.asked} that are selected" if population.asked > population.selected else ""
    when = "at a time" if population.asynchronous else "in each round"
    yield "selected", f"{population.selected}{asked}, {when}: {how}"
    kind, settings = next(iter(description["availability"].items()))
    yield "there", f"by the trace {settings}" if kind == "trace" else kind
    if population.speed is None:
        yield "hardware", _shares(population.hardware)
    yield "links", _shares(population.links)
    for what, quantiles in description["quantiles"].items():
        yield what, ", ".join(f"{part} {value:g}" for part, value in quantiles.items()) + " (quantiles)"


def _shares(shares: Sequence[HardwareShare | LinkShare]) -> str:
    total: defaultdict[str, float] = defaultdict(float)
    for each in shares:
        total[each.name] += each.share
    return ", ".join(f"{name} {format_fraction(round(share, 6))}" for name, share in total.items())
