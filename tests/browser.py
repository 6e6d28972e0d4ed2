"""Debian's Chromium without a screen, driven over its own protocol: opens a page, runs scripts, presses keys, looks."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

FLAGS = tuple(
    f"--{name}"
    for name in (
        *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"),
        *("disable-component-update", "disable-sync", "disable-dev-shm-usage", "mute-audio", "hide-scrollbars"),
        *("autoplay-policy=no-user-gesture-required", "remote-debugging-port=0", "remote-allow-origins=*"),
        "disable-features=IsolateSandboxedIframes",  # so that a notebook's frame can be looked into
    )
)
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Escape": 27, "Home": 36, "End": 35, "Tab": 9}
START_SECONDS = 60


def chromium() -> str:
    """Where it is; tests are skipped without it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        pytest.skip("needs chromium: scripts/install-system-packages")
    pytest.importorskip("websocket", reason="needs websocket-client")
    return found


class Browser:
    """One tab; `problems` has its console errors and exceptions, `requests` what it loaded from anywhere."""

    def __init__(self, address):
        import websocket

        self._socket = websocket.create_connection(address, timeout=60)
        self._number = 0
        self.problems, self.requests = [], []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **values):
        """One command of the protocol, and its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": values}))
        while True:
            message = json.loads(self._socket.recv())
            self._note(message)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def _note(self, message):
        values = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(values["exceptionDetails"].get("exception", {}).get("description", "exception"))
            case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning"):
                self.problems.append(str(values["args"]))
            case "Log.entryAdded" if values["entry"]["level"] in ("error", "warning"):
                self.problems.append(values["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(values["request"]["url"])

    def close(self):
        """Let go of the tab."""
        self._socket.close()

    def open(self, address, ready="document.querySelector('h1')"):
        """Go to a page and wait until `ready`; returns the seconds that took."""
        began = time.perf_counter()
        self.call("Page.navigate", url=address)
        self.wait(ready)
        return time.perf_counter() - began

    def run(self, script):
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"].get("exception", {}).get("description", script))
        return found["result"].get("value")

    def wait(self, script, seconds=30):
        """Until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"not true after {seconds} s: {script}; problems: {self.problems}")
            time.sleep(0.02)

    def press(self, key):
        """A key, as a person presses it."""
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = KEYS.get(key, ord(key[0].upper()))
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra)

    def type(self, text):
        """Text, where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path, width=1280, height=900, dark=False, whole=False):
        """A picture of the page."""
        self.look(width, height, dark)
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def look(self, width=1280, height=900, dark=False):
        """The size of the window, and the theme of the system."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])


@contextmanager
def browser(*more):
    """A browser with a profile of its own and these further flags, which ends with the test."""
    program, profile = chromium(), tempfile.mkdtemp(prefix="attune-browser-")
    log = Path(profile) / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [program, *FLAGS, *more, f"--user-data-dir={profile}", "about:blank"],
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        tab = None
        try:
            tab = Browser(_tab(log))
            yield tab
        finally:
            if tab:
                tab.close()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(profile, ignore_errors=True)


def _tab(log):
    """The address of the first tab, once the browser listens."""
    deadline = time.monotonic() + START_SECONDS
    while not (found := re.search(r"ws://(127\.0\.0\.1:\d+)/", log.read_text())):
        if time.monotonic() > deadline:
            pytest.skip(f"chromium does not start here: {log.read_text()[-500:]}")
        time.sleep(0.05)
    while True:
        with urlopen(f"http://{found[1]}/json") as answer:
            tabs = [each for each in json.load(answer) if each["type"] == "page"]
        if tabs:
            return tabs[0]["webSocketDebuggerUrl"]
        time.sleep(0.05)
