"""Before training, measure one link of each kind against its profile, from inside the nodes' own namespaces.

Links are of one kind if they have the same class and the same profiles. One pair of each kind is measured. Pairs
without a common node are measured at the same time. The checks and the report read the figures from the record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from netem.errors import NetemError
from netem.judge import Judgement, judge
from netem.measure import Measurement, plan_probe, probe_arguments, respond_arguments
from netem.profile import LinkProfile
from orchestrator import text
from orchestrator.errors import HostError
from orchestrator.fabric.hub import Hub
from orchestrator.host import python
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan
from orchestrator.results.record import Record
from orchestrator.results.verdicts import Verdict, worst
from orchestrator.run.context import RunContext
from orchestrator.run.session import Session

PairJudgements = tuple[list[Judgement], list[Judgement]] | str  # forward and back, or why there are none

TIMEOUT = 120.0  # s for one pair
AT_ONCE = 2  # pairs; a probe sends its datagrams on time only if probes do not take all cores of the host


@dataclass(frozen=True)
class ProbedPair:
    """Two nodes and the link between them, in both directions."""

    source: NodePlan
    target: NodePlan
    link_class: str
    forward: LinkProfile
    back: LinkProfile

    @property
    def kind(self) -> tuple[str, LinkProfile, LinkProfile]:
        return self.link_class, self.forward, self.back


def one_of_each_kind(plan: Plan, present: Iterable[str]) -> list[ProbedPair]:
    """The pairs to measure among the nodes ``present``. They are spread so that few pairs share a node."""
    there = set(present)
    profiles = {(link.source, link.target): link for link in plan.links}
    kinds: dict[tuple[str, LinkProfile, LinkProfile], list[ProbedPair]] = {}
    for link in plan.links:
        back = profiles[link.target, link.source]
        if link.source < link.target and {link.source, link.target} <= there:
            pair = _pair(plan, link, back)
            kinds.setdefault(pair.kind, []).append(pair)
    taken: set[str] = set()
    chosen = []
    for pairs in kinds.values():
        pair = min(pairs, key=lambda each: len(taken & {each.source.name, each.target.name}))
        taken |= {pair.source.name, pair.target.name}
        chosen.append(pair)
    return chosen


def batches(pairs: list[ProbedPair], most: int = AT_ONCE) -> Iterator[list[ProbedPair]]:
    """Groups of at most ``most`` pairs. No node is in a group twice."""
    left = list(pairs)
    while left:
        batch: list[ProbedPair] = []
        for pair in list(left):
            names = {name for each in batch for name in (each.source.name, each.target.name)}
            if len(batch) < most and not {pair.source.name, pair.target.name} & names:
                batch.append(pair)
                left.remove(pair)
        yield batch


async def probe_links(run: RunContext, session: Session, hub: Hub, *, quick: bool = True) -> None:
    """Measure one link of each kind and record the verdicts; ``quick`` as in `netem.measure.plan_probe`."""
    pids = {name: state.handle.pid for name, state in session.nodes.items() if state.handle is not None}
    pairs = one_of_each_kind(run.plan, pids)
    run.view.line(f"measuring {text.count(len(pairs), 'kind')} of links")
    for batch in batches(pairs):
        results = await asyncio.gather(*(_measure(pair, pids, hub, quick) for pair in batch))
        for pair, result in zip(batch, results, strict=True):
            _write(run.record, run.clock(), pair, result, run.view.line)
            given: list[Verdict] = ["unknown"] if isinstance(result, str) else [each.verdict for each in chain(*result)]
            session.progress.probed = worst([session.progress.probed, *given])


async def _measure(pair: ProbedPair, pids: dict[str, int], hub: Hub, quick: bool) -> PairJudgements:
    """The verdicts of both directions, or the reason why there are none."""
    responder = await asyncio.create_subprocess_exec(
        *hub.enter(pids[pair.target.name]),
        *python.module("netem.measure", *respond_arguments(pair.target.host)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert responder.stdin is not None
    assert responder.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT):
            ready = json.loads(await responder.stdout.readline())
            sending = plan_probe(pair.forward, pair.back, quick=quick)
            argv = python.module("netem.measure", *probe_arguments(pair.target.host, ready, sending))
            said = await hub.run(argv, pid=pids[pair.source.name])
            return judge(pair.forward, pair.back, sending, Measurement.from_mapping(json.loads(said)))
    except (HostError, NetemError, TimeoutError, ValueError) as error:
        return str(error) or f"it took more than {TIMEOUT:.0f} s"
    finally:
        responder.stdin.close()
        await responder.wait()


def _write(record: Record, t: float, pair: ProbedPair, result: PairJudgements, say: Callable[[str], None]) -> None:
    there, back = (pair.source.name, pair.target.name), (pair.target.name, pair.source.name)
    if isinstance(result, str):
        detail = f"not measured: {result}"
        record.probe(t, *there, pair.link_class, "rtt", None, None, None, None, "unknown", detail)
        say(f"the link {there[0]} - {there[1]} could not be measured: {result}")
        return
    for names, verdicts in zip((there, back), result, strict=True):
        for verdict in verdicts:
            record.probe(
                t,
                *names,
                pair.link_class,
                verdict.quantity,
                verdict.asked,
                verdict.measured,
                verdict.low,
                verdict.high,
                verdict.verdict,
                verdict.detail,
            )
            if verdict.verdict == "fail":
                say(f"the link {names[0]} -> {names[1]} is not as asked: {verdict.quantity}: {verdict.detail}")


def _pair(plan: Plan, link: LinkPlan, back: LinkPlan) -> ProbedPair:
    return ProbedPair(plan.node(link.source), plan.node(link.target), link.link_class, link.profile, back.profile)
