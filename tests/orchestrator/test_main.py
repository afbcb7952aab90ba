"""The process of a command ends, whatever the code of a plug-in leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = "plugins: [mine.py]\nalgorithm: {name: hierfavg, rounds: 1}\n"
PLUGIN = "import edgebed\nPLUGIN = edgebed.Plugin()\n"
FOREVER = "import threading, time\ndef forever():\n    while True: time.sleep(1)\n"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (FOREVER + "threading.Thread(target=forever).start()\n", 0),
        (FOREVER + "import atexit\natexit.register(forever)\n", 0),
        ("raise KeyboardInterrupt\n", 130),
    ],
    ids=["thread", "atexit", "interrupt"],
)
def test_a_command_ends(tmp_path: Path, code: str, exit_code: int) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN + code)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    argv = [sys.executable, "-m", "orchestrator", "validate", str(tmp_path / "scenario.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr


def test_the_handlers_of_signals_come_with_few_imports() -> None:
    code = "import sys; from orchestrator.host.process import signals, streams; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
