"""Look at a page as a phone does: `python3 phone.py ADDRESS WIDTH HEIGHT PICTURE` prints what it found as JSON.

Steers Debian's Chromium over a pipe (Chrome DevTools Protocol, --remote-debugging-pipe: file descriptors 3 and 4,
messages end with a zero byte), so that nothing but Python and the browser is needed, and the page's own policy, which
forbids scripts, stays in force.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_QUESTIONS = {
    "text": "document.body.innerText",
    "width": "document.documentElement.scrollWidth",
    "window": "document.documentElement.clientWidth",
    "sticking_out": "[...document.querySelectorAll('body *')].filter(each => "
    "each.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5 || "
    "each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline').length",
    "strange": "document.querySelectorAll('script, img, iframe, a, object, embed, svg, form, input, link').length",
    "refresh": "document.querySelector('meta[http-equiv=refresh]').content",
}
_ON_READ, _ON_WRITE = 3, 4


class Browser:
    """One headless Chromium with one page."""

    def __init__(self, folder: str) -> None:
        """Start it."""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def arrange() -> None:
            # High first: the ends may themselves be 3 and 4.
            ends = [os.dup(os.dup(os.dup(end))) for end in (theirs_in, theirs_out)]
            os.dup2(ends[0], _ON_READ)
            os.dup2(ends[1], _ON_WRITE)

        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
        self._child = subprocess.Popen(
            ["chromium", *options, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=arrange,  # noqa: PLW1509 - this program has one thread
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._left = b""
        self.events: list[str] = []
        (page,) = [each for each in self("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        self._session = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]

    _session = ""

    def __call__(self, method: str, **params: Any) -> Any:
        """Ask it something and return the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                return answer["result"]

    def wait(self, event: str) -> None:
        """Wait for something to happen."""
        while event not in self.events:
            self._read()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            piece = os.read(self._in, 1 << 16)
            if not piece:
                raise EOFError("Chromium ended")
            self._left += piece
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self.events.append(message.get("method", ""))
        return message

    def end(self) -> None:
        """End it."""
        self._child.terminate()
        self._child.wait()


def main(address: str, width: str, height: str, picture: str) -> None:
    """Look, take a picture, print."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        browser("Page.enable")
        browser("Log.enable")
        screen = {"width": int(width), "height": int(height), "deviceScaleFactor": 1, "mobile": True}
        browser("Emulation.setDeviceMetricsOverride", **screen)
        browser("Page.navigate", url=address)
        browser.wait("Page.loadEventFired")
        found = {
            name: browser("Runtime.evaluate", expression=question, returnByValue=True)["result"]["value"]
            for name, question in _QUESTIONS.items()
        }
        found["dialogs"] = browser.events.count("Page.javascriptDialogOpening")
        found["complaints"] = browser.events.count("Log.entryAdded")
        data = browser("Page.captureScreenshot", format="png")["data"]
        Path(picture).write_bytes(base64.b64decode(data))
        browser.end()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
