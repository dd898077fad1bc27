"""What an analysis rests on as BibTeX: the papers that the sources of its steps name, and smisym itself."""

from __future__ import annotations

from smisym.base.derivation import Derivation
from smisym.report.outlining import references


def bibliography(derivation: Derivation) -> str:
    """Entries of BibTeX, smisym first; plain ASCII."""
    version = "" if derivation.origin is None else dict(derivation.origin.versions).get("smisym", "")
    fields = {
        "author": "{smisym contributors}",
        "title": "{smisym: exact learning theory of attention networks}",
        "howpublished": "software",
        "version": version,
    }
    own = ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items() if text)
    return "\n\n".join([f"@misc{{smisym,\n{own}\n}}", *(one.bibtex for one in references(derivation))]) + "\n"
