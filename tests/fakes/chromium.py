"""A headless Chromium, spoken to over its DevTools: pages as people get them, with what they complain about."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from websockets.sync.client import connect

PATH = shutil.which("chromium")
ADDRESS = re.compile(r"DevTools listening on (ws://\S+)")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
)
DEADLINE = 60.0


@contextmanager
def browser():
    """Yield a running browser; it keeps nothing."""
    assert PATH, "no chromium: apt-get install chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PATH, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            lines = iter(process.stderr.readline, "")
            address = next(match[1] for line in lines if (match := ADDRESS.search(line)))
            with connect(address, max_size=None, open_timeout=DEADLINE) as socket:
                yield Browser(socket)
        finally:
            process.terminate()
            process.wait(DEADLINE)
            process.stderr.close()


class Browser:
    """Pages are opened one at a time."""

    def __init__(self, socket):
        self._socket, self._numbers, self.events = socket, count(1), []

    @contextmanager
    def page(self, url, *, width=1440, height=1000, dark=False, still=False):
        """Open a page in a window of its own; yields it when it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features += [{"name": "prefers-reduced-motion", "value": "reduce"}] if still else []
        page.call("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        page.call("Page.navigate", url=url)
        try:
            page.until("location.href !== 'about:blank' && document.readyState === 'complete'")
            yield page
        finally:
            self.call("Target.closeTarget", targetId=target)

    def call(self, method, session=None, **parameters):
        """Call a method of the DevTools protocol and return its result; events that come meanwhile are kept."""
        number = next(self._numbers)
        told = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        self._socket.send(json.dumps(told))
        while True:
            message = json.loads(self._socket.recv(timeout=DEADLINE))
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self.events.append(message)


class Page:
    """An open page."""

    def __init__(self, browser, session):
        self._browser, self._session = browser, session

    def call(self, method, **parameters):
        """Call a method for this page."""
        return self._browser.call(method, self._session, **parameters)

    def run(self, expression):
        """Return what a JavaScript expression comes to; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression, seconds=DEADLINE):
        """Wait until an expression is true and return its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}\n{self.run('document.body.innerText')}"
            self.run("new Promise((done) => setTimeout(done, 20))")
        return value

    def press(self, key):
        """Press a key and let it go."""
        text = {"Enter": {"text": "\r"}, "Tab": {}, " ": {"text": " "}}.get(key, {})
        codes = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37, "End": 35}
        known = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0), **text}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **known)

    def complaints(self):
        """Return what stood on the console: errors, warnings, exceptions, refused or failed requests."""
        self.run("1")
        found = []
        for event in self._browser.events:
            what = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(what["exceptionDetails"]["exception"].get("description", "exception"))
            elif event["method"] == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                found.append(str([argument.get("value") for argument in what["args"]]))
            elif event["method"] == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(what["entry"]["text"])
            elif event["method"] == "Network.loadingFailed" and not what.get("canceled"):
                found.append(what.get("errorText", "a request failed"))
        return found

    def requests(self):
        """Return the addresses that it asked for."""
        self.run("1")
        sent = (event for event in self._browser.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def names(self):
        """Return (role, name) of everything that assistive technology is told of."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    def picture(self, path, *, whole=True):
        """Save a PNG of the page, of all of it or of the window."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(taken["data"]))
