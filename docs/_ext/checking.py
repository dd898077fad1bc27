"""What the build holds the finished site against: links between its files, and the spelling of its sources."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Words that are right here and that the list of common misspellings has.
RIGHT = "nd,ot,ans,fo,te,mis,hist,ba,som,lamda,thre,bu"
SPELT = ("README.md", "CHANGELOG.md", "docs", "benchmarks/README.md", "tests/README.md", "derivations")


class Page(HTMLParser):
    """Targets of a page's links and pictures, what it fetches from elsewhere, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name == "href" or name == "src":
                self.targets.append(value)
                if urlsplit(value).netloc and tag in ("img", "script", "link", "iframe"):
                    self.fetched.append(value)


def broken_links(site: Path, unmade: str | None = None) -> Iterator[str]:
    """One line for each link within the site that leads nowhere, and for what a page would fetch from elsewhere.

    unmade: how links begin that this build leaves open.
    """
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        yield from (f"{path.relative_to(site.resolve())}: is not read off line: {url}" for url in page.fetched)
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or target in ("", "#") or (unmade and target.startswith(unmade)):
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[there].anchors if there in pages else None
            lost = not there.exists() or (
                parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
            )
            if lost:
                yield f"{path.relative_to(site.resolve())}: nothing is at {target}"


def misspelt(root: Path, names: Sequence[str] = SPELT) -> list[str]:
    """One line for each word that codespell takes for a misspelling, as "file:line: word ==> words"."""
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list", RIGHT]
    command += ["--skip", "*/_build/*,*/gallery/*,*/api/*,docs/derivations/*,*.csv,*.json,*.png,*.js"]
    done = subprocess.run([*command, *names], cwd=root, capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines()
