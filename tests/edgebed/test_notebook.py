"""The notebooks under docs/, and the interruption of a cell, in the kernel that Jupyter starts.

To renew the outputs of a notebook, install nbconvert and kaleido, copy the notebook to an empty folder, run
`PLOTLY_RENDERER=plotly_mimetype+png jupyter nbconvert --to notebook --execute --inplace NOTEBOOK` there, and copy it
back.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from orchestrator.errors import OrchestratorError
from orchestrator.host.process.processes import run_processes
from orchestrator.verbs.python_interface import Run, load

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PATIENCE = 60  # s for a cell

pytestmark = pytest.mark.slow


class Kernel:
    """A kernel in a folder of its own."""

    def __init__(self, folder: Path, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.folder, self.manager, self.client = folder, manager, client

    def run(self, code: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run a cell. Returns the kernel's answer and the cell's outputs."""
        return self.result(self.client.execute(code))

    def result(self, request: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        outputs: list[dict[str, Any]] = []
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            outputs.append(message["content"] | {"type": message["msg_type"]})
        while True:
            answer = self.client.get_shell_msg(timeout=PATIENCE)
            if answer["parent_header"]["msg_id"] == request:
                return answer["content"], outputs


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("notebook")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder), env=environment)
    try:
        yield Kernel(folder, manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def raises(cell: dict[str, Any]) -> bool:
    return "raises-exception" in cell["metadata"].get("tags", ())


def kinds(outputs: list[dict[str, Any]], type_: str) -> set[str]:
    """The forms in which a cell shows its results, beside the text."""
    return {kind for each in outputs for kind in each.get("data", ()) if each[type_] != "update_display_data"} - {
        "text/plain",
        "image/png",  # of a plot, for pages without scripts
    }


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook(kernel: Kernel, notebook: Path) -> None:
    for number, cell in enumerate(cells(notebook), 1):
        answer, outputs = kernel.run("".join(cell["source"]))
        wanted = "error" if raises(cell) else "ok"
        assert answer["status"] == wanted, (cell["id"], "\n".join(answer.get("traceback", ())))
        assert cell["execution_count"] == number
        assert kinds(cell["outputs"], "output_type") == kinds(outputs, "type"), cell["id"]
        assert "image/png" in str(cell["outputs"]) or "plot" not in cell["id"]
        if raises(cell):
            assert [each["traceback"] for each in cell["outputs"]] == [answer["traceback"]]


def test_what_the_first_notebook_made(kernel: Kernel) -> None:
    made = {name: len(list((kernel.folder / "runs").glob(f"{name}*/run.db"))) for name in ("first-", "slow-", "skew/")}
    assert made == {"first-": 1, "slow-": 1, "skew/": 4}


def test_the_progress_of_a_run(kernel: Kernel) -> None:
    _, outputs = kernel.run(f"{ENDLESS}run = edgebed.up(scenario, {{'algorithm.rounds': 3}})")
    shown = [each["data"]["text/html"] for each in outputs if "data" in each]
    assert shown[0] == shown[-1] == ""
    assert any("scenario: round 3 of 3" in each for each in shown)


ENDLESS = """\
import edgebed

scenario = {
    "driver": "sim",
    "algorithm": {"name": "fedavg", "rounds": 1},
    "data": {"dataset": "digits", "samples_per_client": 40},
    "model": "mlp",
    "topology": {"devices": 2},
}
endless = {"algorithm.rounds": 1_000_000}
"""


@pytest.mark.parametrize(
    ("call", "runs"),
    [
        ('edgebed.up(scenario, endless, runs="up")', "up"),
        ('edgebed.sweep({"scenario": scenario, "seeds": [1, 2]}, endless, runs="swept")', "swept/sweep"),
    ],
)
def test_an_interruption_of_the_kernel_ends_the_run_in_order(kernel: Kernel, call: str, runs: str) -> None:
    request = kernel.client.execute(ENDLESS + call)
    run = begun(kernel.folder / runs)
    kernel.manager.interrupt_kernel()
    answer, _ = kernel.result(request)
    assert (answer["status"], answer["ename"]) == ("error", "KeyboardInterrupt")
    assert run.summary["ended"] == "interrupted"
    assert (run.path / "report.html").exists()
    assert run_processes(run.path.name) == []
    assert [path.parent for path in (kernel.folder / runs).glob("*/run.db")] == [run.path]
    answer, outputs = kernel.run('edgebed.up(scenario, runs="next").summary["ended"]')
    assert (answer["status"], outputs[-1]["data"]["text/plain"]) == ("ok", "'rounds'")


def begun(runs: Path) -> Run:
    """The latest run there, when it has made a round."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        try:
            run = load(runs=runs)
            if run.summary["rounds"]:
                return run
        except OrchestratorError:
            pass  # it is not there yet
        time.sleep(0.05)
    raise TimeoutError(f"no run has made a round in {runs}")
