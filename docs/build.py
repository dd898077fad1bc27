"""Builds the site into docs/_build/html, with warnings as errors, and checks its links and its spelling.

python3 run.py docs            all of it: every cell and example is executed
python3 run.py docs --quick    nothing executed: for work on the text
python3 run.py docs --links    asks other sites whether they are there (needs the network); builds nothing else
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE / "_build"


def main(arguments: list[str]) -> int:
    """Exit code: 0 where the site is built and nothing is wrong with it."""
    if set(arguments) - {"--quick", "--links"}:
        print(__doc__, file=sys.stderr)
        return 2
    if arguments:
        os.environ["SMISYM_DOCS_EXECUTE"] = "off"
    from sphinx.cmd.build import main as sphinx

    started = time.perf_counter()
    builder = "linkcheck" if "--links" in arguments else "html"
    forget_removed()
    # Pages of source are made only where they are older than their module: not where other names are described.
    shutil.rmtree(BUILT / builder / "_modules", ignore_errors=True)
    # -E: a page also depends on the package, which Sphinx does not see.
    code = sphinx(
        ["-b", builder, "-W", "--keep-going", "-n", "-E", "-d", str(BUILT / "trees"), str(HERE), str(BUILT / builder)]
    )
    if code or builder == "linkcheck":
        return code
    sys.path.insert(0, str(HERE / "_ext"))
    from checking import broken_links, misspelt

    wrong = [*broken_links(BUILT / builder), *misspelt(HERE.parent)]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"\nThe site took {time.perf_counter() - started:.0f} s. Open {BUILT / builder / 'index.html'}")
    return 1 if wrong else 0


def forget_removed() -> None:
    """Pages of names and examples that are there no more."""
    for path in (HERE / "api").glob("*.rst"):
        path.unlink()
    for path in (HERE / "gallery").glob("e*.rst"):
        if not (HERE / "examples" / f"{path.stem}.py").exists():
            for made in (HERE / "gallery").rglob(f"*{path.stem}*"):
                made.unlink()
    (HERE / "gallery" / "sg_execution_times.rst").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
