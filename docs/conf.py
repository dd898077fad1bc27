"""How Sphinx builds the site; ``python3 run.py docs`` calls it.

Pages are Markdown (MyST). Cells of pages are executed by myst-nb, scripts of docs/examples/ by sphinx-gallery; what
fails stops the build. Why these: docs/contributing.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
# The package of this checkout, also in the kernels that execute pages.
sys.path[:0] = [str(ROOT), str(HERE / "_ext"), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
# Debuggers of kernels warn about frozen modules otherwise.
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"

# The same in every environment: nothing is compiled, and the times of the gallery are those of numpy.
os.environ.setdefault("SMISYM_BACKEND", "numpy")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import cores  # noqa: E402

import smisym  # noqa: E402

# Evaluations begin other processes where there are more cores.
cores.use_one()

project = "smisym"
author = "smisym contributors"
project_copyright = f"{author}, BSD-3-Clause"
release = version = smisym.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # Ours, in docs/_ext.
    "native_math",
    "elsewhere",
    "made_tables",
]
exclude_patterns = ["_build", "_ext", "examples", "figures", "gallery/*.ipynb", "gallery/*.py", "gallery/*.md5"]
suppress_warnings = ["config.cache"]  # functions in this file
nitpicky = True
nitpick_ignore_regex = [
    # Not ours, or of the rooms inside: the reference has what is public.
    (
        "py:.*",
        r"(np|numpy|sp|sympy|scipy|collections|concurrent|pathlib|matplotlib|enum|Figure|Path|os|typing|Callable|Sequence)\b.*",
    ),
]

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_fence_as_directive = ["math"]
nb_execution_mode = os.environ.get("SMISYM_DOCS_EXECUTE", "force")
if nb_execution_mode == "off":
    suppress_warnings.append("myst-nb.lexer")  # a kernel tells the language
nb_execution_timeout = 600  # of one cell, on a machine with other work
nb_execution_raise_on_error = True
nb_merge_streams = True

# Reference
autosummary_generate = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
templates_path = ["_templates"]

# Gallery
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$" if nb_execution_mode != "off" else "nothing",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "api/examples",
    "doc_module": ("smisym",),
    "prefer_full_module": {r"smisym\."},
    "abort_on_example_error": True,
    "parallel": len(cores.ALL),
    "reset_modules": ("matplotlib", "seaborn", "cores.for_an_example"),
    "reset_modules_order": "both",
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "write_computation_times": False,  # a page with scripts from elsewhere
    "min_reported_time": 0,
    "show_memory": False,
    "show_signature": False,
    "image_scrapers": ("matplotlib",),
    "download_all_examples": False,
    "thumbnail_size": (400, 280),
    "matplotlib_animations": False,
}

# Pages
html_theme = "furo"
html_title = "smisym"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"
# Searching is done by the browser, from files that lie beside the pages: no server, no network.
html_search_language = "en"

# Links to other sites: python3 run.py docs --links
linkcheck_timeout = 20
linkcheck_retries = 2
