"""Declarations that tell which keywords they have, where one is called with another."""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import Any, TypeVar

from smisym.base.edge import check_settings

T = TypeVar("T")


def named(declaration: type[T]) -> type[T]:
    """The dataclass itself, which raises InputError for a keyword that it has not, with those near it; its signature
    stays as it is."""
    known = tuple(field.name for field in fields(declaration) if field.init)  # type: ignore[arg-type]
    made = declaration.__init__

    @functools.wraps(made)
    def checked(self: T, *given: Any, **by_name: Any) -> None:
        check_settings(by_name, known)
        made(self, *given, **by_name)

    setattr(declaration, "__init__", checked)  # noqa: B010
    return declaration
