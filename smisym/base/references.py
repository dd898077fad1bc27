"""What derivations rest on: one table of papers, and which of them a text names.

A source of a step names a paper by its arXiv number or its DOI ("arXiv 2502.00901, eq. 14"); that is how it is found
here.  Facts of publication are those of the publishers' pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """One paper.

    key: of BibTeX, and the mark in documents.  kind: "article", "inproceedings" or "misc".  authors: "Family, Given".
    where: journal, proceedings or archive.  detail: volume, number and pages as (field of BibTeX, text).
    """

    key: str
    kind: str
    authors: tuple[str, ...]
    title: str
    where: str
    year: int
    detail: tuple[tuple[str, str], ...] = ()
    arxiv: str = ""
    doi: str = ""
    url: str = ""

    def named_in(self, text: str) -> bool:
        """Whether a text names it, by its arXiv number or DOI."""
        return any(mark and mark in text for mark in (self.arxiv, self.doi))

    @property
    def sentence(self) -> str:
        """As a line of a bibliography, plain text."""
        names = [" ".join(reversed(name.split(", "))) for name in self.authors]
        known = dict(self.detail)
        place = self.where
        if "volume" in known:
            place += f" {known['volume']}{'(' + known['number'] + ')' if 'number' in known else ''}"
        if "pages" in known:
            place += f", {known['pages'].replace('--', '–')}"
        marks = [f"arXiv:{self.arxiv}"] * bool(self.arxiv) + [f"doi:{self.doi}"] * bool(self.doi)
        return f"{', '.join(names)}: {self.title}. {place} ({self.year}). {', '.join(marks)}".strip()

    @property
    def bibtex(self) -> str:
        """As an entry of BibTeX, letters outside ASCII as commands."""
        place = {"article": "journal", "inproceedings": "booktitle"}.get(self.kind, "howpublished")
        fields = [
            ("author", " and ".join(self.authors)), ("title", f"{{{self.title}}}"), (place, self.where),
            *self.detail, ("year", str(self.year)), ("eprint", self.arxiv),
            ("archiveprefix", "arXiv" if self.arxiv else ""), ("doi", self.doi), ("url", self.url),
        ]  # fmt: skip
        lines = [f"  {name} = {{{_ascii(text)}}}" for name, text in fields if text]
        return f"@{self.kind}{{{self.key},\n" + ",\n".join(lines) + "\n}"


def _ascii(text: str) -> str:
    for letter, command in _ACCENTS.items():
        text = text.replace(letter, command)
    return text


_ACCENTS = {"é": r"{\'e}", "á": r"{\'a}", "ë": r"{\"e}", "ï": r"{\"i}", "–": "--"}

SEQUENCE_MODELS = Reference(
    "troiani2025sequence", "inproceedings",
    ("Troiani, Emanuele", "Cui, Hugo", "Dandi, Yatin", "Krzakala, Florent", "Zdeborová, Lenka"),
    "Fundamental limits of learning in sequence multi-index models and deep attention networks: high-dimensional "
    "asymptotics and sharp thresholds",
    "Proceedings of the 42nd International Conference on Machine Learning, PMLR", 2025,
    (("volume", "267"), ("pages", "60147--60182")), "2502.00901",
    url="https://proceedings.mlr.press/v267/troiani25a.html",
)  # fmt: skip
WEAK_LEARNABILITY = Reference(
    "troiani2025weak", "inproceedings",
    ("Troiani, Emanuele", "Dandi, Yatin", "Defilippis, Leonardo", "Zdeborová, Lenka", "Loureiro, Bruno",
     "Krzakala, Florent"),
    "Fundamental computational limits of weak learnability in high-dimensional multi-index models",
    "Proceedings of the 28th International Conference on Artificial Intelligence and Statistics, PMLR", 2025,
    (("volume", "258"), ("pages", "2467--2475")), "2405.15480",
    url="https://proceedings.mlr.press/v258/troiani25a.html",
)  # fmt: skip
GAMP = Reference(
    "rangan2011", "inproceedings", ("Rangan, Sundeep",),
    "Generalized approximate message passing for estimation with random linear mixing",
    "IEEE International Symposium on Information Theory", 2011, (("pages", "2168--2172"),), "1010.5141",
)  # fmt: skip
AMP = Reference(
    "donoho2009", "article", ("Donoho, David L.", "Maleki, Arian", "Montanari, Andrea"),
    "Message-passing algorithms for compressed sensing", "Proceedings of the National Academy of Sciences", 2009,
    (("volume", "106"), ("number", "45"), ("pages", "18914--18919")), "0907.3574", "10.1073/pnas.0909892106",
)  # fmt: skip
STATE_EVOLUTION = Reference(
    "javanmard2013", "article", ("Javanmard, Adel", "Montanari, Andrea"),
    "State evolution for general approximate message passing algorithms, with applications to spatial coupling",
    "Information and Inference: A Journal of the IMA", 2013,
    (("volume", "2"), ("number", "2"), ("pages", "115--144")), "1211.5164",
)  # fmt: skip
GRAPHS = Reference(
    "gerbelot2023", "article", ("Gerbelot, Cédric", "Berthier, Raphaël"),
    "Graph-based approximate message passing iterations", "Information and Inference: A Journal of the IMA", 2023,
    (("volume", "12"), ("number", "4"), ("pages", "2562--2628")), "2109.11905",
)  # fmt: skip
COMMITTEE = Reference(
    "aubin2018", "inproceedings",
    ("Aubin, Benjamin", "Maillard, Antoine", "Barbier, Jean", "Krzakala, Florent", "Macris, Nicolas",
     "Zdeborová, Lenka"),
    "The committee machine: computational to statistical gaps in learning a two-layers neural network",
    "Advances in Neural Information Processing Systems", 2018, (("volume", "31"), ("pages", "3223--3234")),
    "1806.05451",
)  # fmt: skip
LINEAR_MODELS = Reference(
    "barbier2019", "article",
    ("Barbier, Jean", "Krzakala, Florent", "Macris, Nicolas", "Miolane, Léo", "Zdeborová, Lenka"),
    "Optimal errors and phase transitions in high-dimensional generalized linear models",
    "Proceedings of the National Academy of Sciences", 2019,
    (("volume", "116"), ("number", "12"), ("pages", "5451--5460")), "1708.03395", "10.1073/pnas.1802705116",
)  # fmt: skip
NISHIMORI = Reference(
    "nishimori1980", "article", ("Nishimori, Hidetoshi",),
    "Exact results and critical properties of the Ising model with competing interactions",
    "Journal of Physics C: Solid State Physics", 1980, (("volume", "13"), ("number", "21"), ("pages", "4071")),
    doi="10.1088/0022-3719/13/21/012",
)  # fmt: skip
INFERENCE = Reference(
    "zdeborova2016", "article", ("Zdeborová, Lenka", "Krzakala, Florent"),
    "Statistical physics of inference: thresholds and algorithms", "Advances in Physics", 2016,
    (("volume", "65"), ("number", "5"), ("pages", "453--552")), "1511.02476", "10.1080/00018732.2016.1211393",
)  # fmt: skip
FIRST_ORDER = Reference(
    "celentano2020", "inproceedings", ("Celentano, Michael", "Montanari, Andrea", "Wu, Yuchen"),
    "The estimation error of general first order methods", "Conference on Learning Theory, PMLR", 2020,
    (("pages", "1078--1141"),), "2002.12903",
)  # fmt: skip
STEIN = Reference(
    "stein1981", "article", ("Stein, Charles M.",),
    "Estimation of the mean of a multivariate normal distribution", "The Annals of Statistics", 1981,
    (("volume", "9"), ("number", "6"), ("pages", "1135--1151")), doi="10.1214/aos/1176345632",
)  # fmt: skip
INDEXED = Reference(
    "boncoraglio2025", "misc",
    ("Boncoraglio, Fabrizio", "Troiani, Emanuele", "Erba, Vittorio", "Zdeborová, Lenka"),
    "Bayes optimal learning of attention-indexed models", "arXiv", 2025, arxiv="2506.01582",
)  # fmt: skip
EXTENSIVE_WIDTH = Reference(
    "maillard2024", "inproceedings",
    ("Maillard, Antoine", "Troiani, Emanuele", "Martin, Simon", "Krzakala, Florent", "Zdeborová, Lenka"),
    "Bayes-optimal learning of an extensive-width neural network from quadratically many samples",
    "Advances in Neural Information Processing Systems", 2024, (("volume", "37"),), "2408.03733",
)  # fmt: skip
BILINEAR = Reference(
    "erba2025", "article",
    ("Erba, Vittorio", "Troiani, Emanuele", "Biggio, Luca", "Maillard, Antoine", "Zdeborová, Lenka"),
    "Bilinear sequence regression: a model for learning from long sequences of high-dimensional tokens",
    "Physical Review X", 2025, (), "2410.18858", "10.1103/l4p2-vrxt",
)  # fmt: skip
RECTANGULAR = Reference(
    "benaychgeorges2009", "article", ("Benaych-Georges, Florent",),
    "Rectangular random matrices, related convolution", "Probability Theory and Related Fields", 2009,
    (("volume", "144"), ("number", "3-4"), ("pages", "471--515")), "math/0512080",
)  # fmt: skip

REFERENCES = (
    SEQUENCE_MODELS, WEAK_LEARNABILITY, GAMP, AMP, STATE_EVOLUTION, GRAPHS, COMMITTEE, LINEAR_MODELS, NISHIMORI,
    INFERENCE, FIRST_ORDER, STEIN, INDEXED, EXTENSIVE_WIDTH, BILINEAR, RECTANGULAR,
)  # fmt: skip


def named(texts: Iterable[str]) -> tuple[Reference, ...]:
    """The papers that texts name, in the order in which they are met."""
    found: dict[str, Reference] = {}
    for text in texts:
        for one in REFERENCES:
            if one.named_in(text):
                found.setdefault(one.key, one)
    return tuple(found.values())


def cited(reference: Reference, detail: str = "") -> str:
    """How a source of a step names a paper: "arXiv 2502.00901, eq. 14"."""
    mark = f"arXiv {reference.arxiv}" if reference.arxiv else f"doi {reference.doi}"
    return f"{mark}, {detail}" if detail else mark
