"""What a scenario's sections have in common: known keys only, checked when there is something to check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, core_schema


class Section(BaseModel):
    """A mapping of known keys only; values keep the type they were written with."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class ByItself:
    """Marks a section inside another one: its own checks are built when it is first given.

    A scenario gives a few of its sections; building the checks of all of them costs a tenth of a short run.
    """

    def __get_pydantic_core_schema__(
        self, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return checks that hand the value to the section; its findings keep their paths."""
        del handler
        return core_schema.no_info_plain_validator_function(source.model_validate)


BY_ITSELF = ByItself()


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield part


def plain_values(section: BaseModel) -> dict[str, Any]:
    """Return a section as plain values in the schema's order, quantities written with their units.

    The same as ``model_dump(mode="json")``, which would first build the checks of every section.
    """
    renders = _renders(type(section))
    return {name: _plain(getattr(section, name), renders.get(name)) for name in type(section).model_fields}


def _plain(value: Any, render: Callable[..., Any] | None) -> Any:
    if value is None:
        return None
    if render is not None:
        return render(value)
    if isinstance(value, BaseModel):
        return plain_values(value)
    if isinstance(value, dict):
        return {key: _plain(own, None) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(own, None) for own in value]
    return value


@cache
def _renders(model: type[BaseModel]) -> dict[str, Callable[..., Any]]:
    """Return by field how its values are written, of those that have a way of their own."""
    found = {}
    for name, field in model.model_fields.items():
        for part in (*field.metadata, *_parts(field.annotation)):
            if isinstance(part, PlainSerializer):
                found[name] = part.func
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    for part in get_args(annotation):
        yield part
        yield from _parts(part)
