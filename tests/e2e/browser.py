"""A headless Chromium, driven through two pipes over its DevTools protocol (chromedevtools.github.io)."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

needs_chromium = pytest.mark.programs("chromium")
PATIENCE = 20.0  # s


class Tab:
    """One page. ``errors`` are those that it told the console, ``asked`` the addresses that it asked for."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._unread = b""
        self._last = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.asked: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, and the scheme of colours."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        self._call("Page.navigate", url=address)

    def value(self, expression: str, patience: float = PATIENCE) -> Any:
        """The value of an expression of JavaScript, as far as JSON has it."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self._call("Runtime.evaluate", patience, **asked)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str, patience: float = PATIENCE) -> float:
        """Wait until an expression is true; in a page that is not whole yet it may raise. Returns the seconds."""
        began = time.monotonic()
        while not self.value(f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"):
            waited = time.monotonic() - began
            assert waited < patience, f"{expression} is not true after {waited:.1f} s; {self.errors}"
            time.sleep(0.02)
        return time.monotonic() - began

    def click(self, element: str) -> None:
        """Click with the mouse where an element is, which an expression of JavaScript gives: what only a user may do is
        then allowed."""
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        middle = "box => [box.x + box.width / 2, box.y + box.height / 2]"
        x, y = self.value(f"({middle})({element}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def clipboard(self) -> str:
        """What is in the clipboard, which the page may read from now on."""
        self._call("Browser.grantPermissions", permissions=["clipboardReadWrite"], origin=self.value("location.origin"))
        found: str = self.value("navigator.clipboard.readText()")
        return found

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _call(self, method: str, patience: float = PATIENCE, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + patience
        while True:
            said = self._hear(deadline, method)
            if said.get("id") == self._last:
                assert "error" not in said, f"{method}: {said['error']}"
                found: dict[str, Any] = said["result"]
                return found
            self._note(said.get("method"), said.get("params", {}))

    def _hear(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"Chromium does not answer {method}"
            self._unread += os.read(self._reading, 1 << 20)
        line, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: str | None, told: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"].get("exception", {}).get("description", told)))
        elif event == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif event == "Runtime.consoleAPICalled" and told["type"] == "error":
            self.errors.append(str(told["args"]))
        elif event == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A tab of a fresh Chromium, whose profile is in a folder."""
    to_chromium, from_us = os.pipe()
    to_us, from_chromium = os.pipe()

    def hand_over() -> None:
        first, second = os.dup(to_chromium), os.dup(from_chromium)
        os.dup2(first, 3)  # where Chromium reads and writes with --remote-debugging-pipe
        os.dup2(second, 4)

    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio")
    process = subprocess.Popen(
        ["chromium", *options, *quiet, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=hand_over,
    )
    os.close(to_chromium)
    os.close(from_chromium)
    try:
        yield Tab(to_us, from_us)
    finally:
        os.close(from_us)
        process.terminate()
        process.wait()
        os.close(to_us)
