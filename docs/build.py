"""Builds the site into docs/_build/html, with warnings as errors, and checks its links and its spelling.

python3 run.py docs            all of it: every cell and example is executed
python3 run.py docs --quick    nothing executed: for work on the text
python3 run.py docs --links    asks other sites whether they are there (needs the network); builds nothing else
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
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
    with tempfile.TemporaryDirectory(prefix="smisym-bytecode-") as folder:
        # A program a page would else read the source anew where nothing may be written beside it.
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            os.environ.setdefault("PYTHONPYCACHEPREFIX", folder)
        return build(arguments)


def build(arguments: list[str]) -> int:
    """The same, with the bytecode of what is imported kept somewhere."""
    from sphinx.cmd.build import main as sphinx

    started = time.perf_counter()
    builder = "linkcheck" if "--links" in arguments else "html"
    if builder == "html":
        forget()
    # -E: a page also depends on the package, which Sphinx does not see.
    options = ["-W", "--keep-going", "-n", "-E", "-j", "auto", "-d", str(BUILT / "trees")]
    code = sphinx(["-b", builder, *options, str(HERE), str(BUILT / builder)])
    if code or builder == "linkcheck":
        return code
    sys.path.insert(0, str(HERE / "_ext"))
    from checking import broken_links, misspelt

    # Where nothing is executed derivations are not made either.
    unmade = "derived/" if arguments else None
    wrong = [*broken_links(BUILT / builder, unmade), *misspelt(HERE.parent)]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"\nThe site took {time.perf_counter() - started:.0f} s. Open {BUILT / builder / 'index.html'}")
    return 1 if wrong else 0


def forget() -> None:
    """Remove what was made of names, examples and a package as they were before, and the pages of the last build."""
    newest = max(path.stat().st_mtime for path in (HERE.parent / "smisym").rglob("*.py"))
    for path in (HERE / "gallery").glob("*.md5"):
        if path.stat().st_mtime < newest:
            path.unlink()  # sphinx-gallery executes again what has none
    for path in (HERE / "api").glob("*.rst"):
        path.unlink()
    for path in (HERE / "gallery").glob("e*.rst"):
        if not (HERE / "examples" / f"{path.stem}.py").exists():
            for made in (HERE / "gallery").rglob(f"*{path.stem}*"):
                made.unlink()
    for path in (BUILT / "html").glob("*"):
        # Derivations of the table's rows are made again where the package is newer than they.
        if path.is_dir() and path.name != "derived":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
