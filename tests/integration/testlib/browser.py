# SPDX-License-Identifier: Apache-2.0
"""A browser without a window, driven over its debugging pipe (--remote-debugging-pipe), so that no
package for it is needed: messages of JSON, each with a NUL behind it."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

from .wait import DEADLINE

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """Path of a browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser. What it says on its console and asks for is kept."""

    def __init__(self, folder):
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        self.console, self.requests, self.answers = [], [], {}
        self.to, self.come, self.text, self.number = to_write, from_read, b"", 0
        command = [
            find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--window-size=1200,900", "--remote-debugging-pipe", f"--user-data-dir={folder}",
            "about:blank",
        ]  # fmt: skip

        def give_pipes():
            # The browser reads descriptor 3 and writes to descriptor 4. Either pipe may have one of the two.
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 5) for end in (to_read, from_write)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            command, close_fds=False, preexec_fn=give_pipes,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        self.session = None
        pages = self.ask("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")
        self.ask("Performance.enable", timeDomain="threadTicks")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.come)

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        number, end = self.number, time.monotonic() + DEADLINE
        while number not in self.answers:
            self.hear(end)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def hear(self, end):
        """Takes what has come; waits for something until then."""
        if not select.select([self.come], [], [], max(0, end - time.monotonic()))[0]:
            raise TimeoutError("the browser says nothing")
        come = os.read(self.come, 1 << 20)
        if not come:
            raise ConnectionError("the browser is gone")
        self.text += come
        *messages, self.text = self.text.split(b"\0")
        for message in map(json.loads, messages):
            params, method = message.get("params", {}), message.get("method")
            if "id" in message:
                self.answers[message["id"]] = message
            elif method == "Runtime.exceptionThrown":
                self.console.append(str(params["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                self.console.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                self.console.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
            elif method == "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def open(self, url):
        self.ask("Page.navigate", url=url)

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_for(self, script, what):
        """Waits until the expression is true. Before the page is there, its names are not."""
        end = time.monotonic() + DEADLINE
        while True:
            error = ""
            try:
                if value := self.run(script):
                    return value
            except RuntimeError as e:
                error = str(e)
            if time.monotonic() > end:
                raise AssertionError(f"{what}: {error} {self.run('document.body.innerText')}")
            time.sleep(0.05)

    def key(self, name, code=0):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if name == "Enter" and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                     windowsVirtualKeyCode=code, **text)  # fmt: skip

    def scheme(self, name):
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": name}])  # fmt: skip

    def script_ms(self):
        """Time of the processor that the page's scripts have taken so far."""
        metrics = self.ask("Performance.getMetrics")["metrics"]
        return next(m["value"] * 1000 for m in metrics if m["name"] == "ScriptDuration")

    def block(self, *urls):
        """Requests to these addresses fail; '*' stands for anything."""
        self.ask("Network.setBlockedURLs", urls=list(urls))

    def size(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride",
                 width=width, height=height, deviceScaleFactor=1, mobile=False)  # fmt: skip

    def picture(self, path):
        shot = self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
