"""The entry points, what each is given, and how. Hypothesis draws the input and makes it small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.campaign.hostile.data import (
    LEAF,
    arrays,
    courses,
    feed_arrays,
    feed_client_settings,
    feed_idx,
    feed_leaf,
    feed_picture,
    feed_schedule,
    feed_stays,
    feed_table,
    feed_traces,
    idx,
    pictures,
    plan,
    scenarios,
    settings_of_clients,
    stays,
    tables,
    trace,
    traces_of_others,
)
from tests.campaign.hostile.folders import SWEEP, SWEEP_COMMANDS, damages, feed_run, feed_sweep
from tests.campaign.hostile.material import written
from tests.campaign.hostile.nodes import (
    checkpoints,
    feed_checkpoint,
    feed_lines,
    feed_messages,
    feed_returned,
    lines,
    messages,
)
from tests.campaign.hostile.page import feed_request, requests
from tests.campaign.hostile.places import KINDS

Feed = Callable[[Path, Any], None]


class Entry(NamedTuple):
    """An entry point: what it is given, and how. ``template``: of the folder that it gets."""

    given: st.SearchStrategy[Any]
    feed: Feed
    template: str = "empty"


ENTRIES: dict[str, Entry] = {
    "lines of programs": Entry(lines(), feed_lines, "running"),
    "messages of nodes": Entry(messages(), feed_messages, "running"),
    "checkpoints": Entry(checkpoints(), feed_checkpoint),
    "returned files": Entry(
        st.lists(st.tuples(st.sampled_from(["a", "b/c", "b"]), st.sampled_from(KINDS)), max_size=3), feed_returned
    ),
    "run directories": Entry(damages(), feed_run, "run"),
    "sweeps": Entry(st.tuples(written(SWEEP), st.sampled_from(SWEEP_COMMANDS)), feed_sweep, "sweep"),
    "requests": Entry(requests(), feed_request, "run"),
    "scenarios": Entry(scenarios(), plan),
    "schedules": Entry(st.tuples(st.just("trace"), trace) | st.tuples(st.just("csv"), courses), feed_schedule),
    "availability": Entry(st.tuples(stays, st.booleans()), feed_stays),
    "clients": Entry(settings_of_clients, feed_client_settings),
    "npz": Entry(arrays(), feed_arrays),
    "idx": Entry(idx(), feed_idx),
    "pictures": Entry(pictures, feed_picture),
    "leaf": Entry(st.tuples(written(LEAF), st.booleans()), feed_leaf),
    "tables": Entry(tables, feed_table),
    "traces of others": Entry(traces_of_others(), feed_traces),
}
