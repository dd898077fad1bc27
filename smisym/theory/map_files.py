"""Files of overlap maps: the estimates that were made, as arrays, with a JSON header."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from smisym.base.errors import InputError
from smisym.base.files import write_bytes
from smisym.model.compiled import Model
from smisym.theory.estimate import Estimate, estimate_from

# How points are drawn: numbers of maps that are drawn in another way do not go together.
DRAWN = 2


def write_map(path: str | Path, known: Mapping[tuple[int, bytes], Estimate], head: Mapping[str, Any]) -> None:
    """One .npz file, written atomically.  known: by scramble and the bytes of Q; head: with "map", the settings."""
    keys = sorted(known)
    arrays: dict[str, np.ndarray] = {
        f.name: np.array([getattr(known[k], f.name) for k in keys]) for f in fields(Estimate)
    }
    arrays["scramble"] = np.array([k[0] for k in keys], dtype=int)
    arrays["header"] = np.array(json.dumps({**head, "drawn": DRAWN}))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(Path(path), buffer.getvalue())


def read_map(path: str | Path, model: Model) -> tuple[dict[str, Any], list[tuple[int, Estimate]]]:
    """The settings of a file and its estimates, each with its scramble; InputError where they are not of this model."""
    try:
        with np.load(path, allow_pickle=False) as data:
            head = json.loads(str(data["header"]))
            arrays = {name: data[name] for name in data.files if name != "header"}
    except (OSError, ValueError, KeyError) as error:
        raise InputError("overlap map", str(path), "a file written by OverlapMap.save", str(error)) from None
    missing = {f.name for f in fields(Estimate)} - arrays.keys()
    if missing or head.get("drawn") != DRAWN:
        what = f"without {sorted(missing)}" if missing else "whose points are drawn in another way"
        raise InputError("overlap map", f"{path}, {what}", "a file of this version", "make the map anew")
    if model.architecture is not None and head.get("architecture_digest") != model.architecture.digest:
        fix = "compile the architecture that it was made for"
        raise InputError("overlap map", str(path), "a map of the same architecture", fix)
    found = []
    for i, scramble in enumerate(arrays["scramble"]):
        estimate = estimate_from({f.name: arrays[f.name][i] for f in fields(Estimate)}, model)
        if estimate is None:
            allowed = "estimates of this model"
            raise InputError("overlap map", f"{path}, with a bad estimate {i}", allowed, "make the map anew")
        found.append((int(scramble), estimate))
    return head["map"], found
