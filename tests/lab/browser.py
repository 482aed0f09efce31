"""A real browser: Debian's chromium without a window, driven over its debugging pipe. It has no network: it only reads
the page's own file.

    with Browser() as browser:
        page = browser.open(path, width=390, dark=True)
        page.evaluate("document.title")

A page records what the browser complained about (`complaints`) and which addresses it asked for (`requests`).
"""
import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from support.tap import need_rights_for

LIMIT_S = 60
OPTIONS = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--mute-audio"]


def high_pipe():
    """Makes a pipe that avoids the descriptors chromium uses."""
    pair = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pair)
    for end in pair:
        os.close(end)
    return high


class Browser:
    def __enter__(self):
        if os.geteuid():
            need_rights_for("unshare", "--user", "true")  # its sandbox needs that, and root's has none
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-browser-", ignore_cleanup_errors=True))
        (theirs_in, self.to), (self.from_, theirs_out) = high_pipe(), high_pipe()
        options = OPTIONS + [f"--user-data-dir={folder}"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
        # It reads from descriptor 3 and writes to 4.
        self.child = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", shutil.which("chromium") or "chromium", *options],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env=os.environ | {"HOME": folder})
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.rest, self.pages = 0, b"", {}
        return self

    def __exit__(self, *_):
        os.close(self.to)  # at which it ends
        try:
            self.child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        os.close(self.from_)
        self.stack.close()

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        answer = self.wait(lambda message, number=self.number: message.get("id") == number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def wait(self, is_it):
        """The next message that is the one; events on the way are given to their pages."""
        until = time.monotonic() + LIMIT_S
        while True:
            while b"\0" not in self.rest:
                assert select.select([self.from_], [], [], max(0, until - time.monotonic()))[0], "chromium does not answer"
                piece = os.read(self.from_, 1 << 20)
                assert piece, "chromium has ended"
                self.rest += piece
            line, _, self.rest = self.rest.partition(b"\0")
            message = json.loads(line)
            if page := self.pages.get(message.get("sessionId")):
                page.take(message)
            if is_it(message):
                return message

    def open(self, path, width=1200, height=900, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 600)
        page.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        loader = page.call("Page.navigate", url=f"file://{path}")["loaderId"]
        if loader not in page.loaded:
            self.wait(lambda _: loader in page.loaded)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.complaints, self.requests = [], []
        self.loaded = set()  # the loaders of documents: about:blank also has one

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def take(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.lifecycleEvent" and parameters["name"] == "load":
            self.loaded.add(parameters["loaderId"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(parameters))

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
