"""One Chromium for many pages, without a dependency: the DevTools protocol over two pipes.

https://chromedevtools.github.io/devtools-protocol/, ``--remote-debugging-pipe``: JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATIENCE = 60.0
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

# What a reader would see that should not be there.  A glyph is missing where a character looks as U+0378 does, which no
# font has, or leaves the canvas empty.  Letters of mathematics are italic by a rule of MathML, so that they are other
# characters than those in the page.
LOOK = r"""
(() => {
  const italic = (c) => {
    const n = c.codePointAt(0), from = (a, b, to) => n >= a && n <= b ? String.fromCodePoint(to + n - a) : null;
    return c === 'h' ? '\u210e' : from(65, 90, 0x1d434) || from(97, 122, 0x1d44e) || from(0x3b1, 0x3c9, 0x1d6fc)
      || from(0x391, 0x3a9, 0x1d6e2) || c;
  };
  const canvas = document.createElement('canvas');
  canvas.width = 40; canvas.height = 40;
  const context = canvas.getContext('2d', {willReadFrequently: true});
  const drawn = (font, character) => {
    context.clearRect(0, 0, 40, 40);
    if (context.font !== font) context.font = font;
    context.fillText(character, 8, 28);
    return new Uint32Array(context.getImageData(0, 0, 40, 40).data.buffer);
  };
  const same = (a, b) => a.every((value, k) => value === b[k]);
  const blank = drawn('20px serif', ' '), boxes = {}, tried = new Set(), missing = [], latex = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement, text = node.textContent;
    if (!text.trim() || parent.closest('annotation, style, script')) continue;
    if (!parent.closest('pre, code') && /\\[A-Za-z(\[]|\$|[_^]\{|\ufffd/.test(text)) latex.push(text.trim());
    const style = getComputedStyle(parent);
    const font = `${style.fontStyle} ${style.fontWeight} 20px ${style.fontFamily}`;
    const single = parent.matches('mi:not([mathvariant=normal])') && [...text].length === 1;
    boxes[font] ||= drawn(font, '\u0378');
    for (const character of single ? italic(text) : text) {
      // Spaces, and what is invisible by its nature: application of a function, invisible times, joiners.
      if (/[\s\u00ad\u200b-\u200f\u2060-\u2064\ufe0e\ufe0f]/u.test(character) || tried.has(font + character)) continue;
      tried.add(font + character);
      const image = drawn(font, character);
      if (same(image, boxes[font]) || same(image, blank)) missing.push(character);
    }
  }
  return {
    latex, missing, characters: tried.size, formulas: document.querySelectorAll('math').length,
    unset: document.querySelectorAll('code.tex, merror').length,
    wider: document.documentElement.scrollWidth - window.innerWidth,
  };
})()
"""


@dataclass(frozen=True)
class Seen:
    """latex: text that shows commands.  missing: characters without a glyph, of ``characters`` that were tried.
    formulas: how many are set, and ``unset`` not.  wider: pixels by which the page is wider than the window.  said:
    what the console was told."""

    latex: list[str]
    missing: list[str]
    characters: int
    formulas: int
    unset: int
    wider: int
    said: list[str]


class Browser:
    """A Chromium that shows one page after another."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number, self._rest, self._session = 0, b"", ""
        self._events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def look(self, page: Path, width: int, *, screenshot: Path | None = None) -> Seen:
        """What the page shows in a window of this width."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._events.clear()
        self._ask("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())
        answer = self._ask("Runtime.evaluate", expression=LOOK, returnByValue=True)
        if screenshot is not None:
            image = self._ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
            screenshot.write_bytes(base64.b64decode(image))
        told = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        said = [json.dumps(event["params"]) for event in self._events if event["method"] in told]
        return Seen(**answer["result"]["value"], said=said)

    def _ask(self, method: str, **given: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._next()
            if heard.get("id") == self._number:
                assert "error" not in heard, heard
                return dict(heard["result"])
            if "method" in heard:
                self._events.append(heard)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], max(until - time.monotonic(), 0))
            assert ready, "Chromium does not answer"
            piece = os.read(self._back, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))


@contextmanager
def browsing(chromium: str, profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, ended at the end."""
    pipes = (*os.pipe(), *os.pipe())
    # Out of the way of 3 and 4, where Chromium looks for its ends; closed in it but for those.
    heard, to, back, spoken = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pipes)
    for end in pipes:
        os.close(end)
    nowhere = [(os.POSIX_SPAWN_OPEN, end, os.devnull, os.O_WRONLY, 0) for end in (1, 2)]
    ends = [(os.POSIX_SPAWN_DUP2, heard, 3), (os.POSIX_SPAWN_DUP2, spoken, 4)]
    arguments = [chromium, *_SWITCHES, f"--user-data-dir={profile}"]
    process = os.posix_spawn(chromium, arguments, os.environ, file_actions=[*nowhere, *ends])
    for end in (heard, spoken):
        os.close(end)
    try:
        yield Browser(to, back)
    finally:
        # It ends when nobody speaks to it any more.
        for end in (to, back):
            os.close(end)
        os.waitpid(process, 0)
