"""pydantic's core alone: what checks values, without the types for authors of schemas beside it.

These types are 130 classes, and a check is written as the plain mapping that they describe: the package's
``__init__`` would be a twentieth of a run of one request.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import PydanticKnownError, SchemaValidator, ValidationError

_PACKAGE, _CORE = "pydantic_core", "pydantic_core._pydantic_core"


def _core() -> Any:
    """Return the extension module, under its own name: who imports the package later gets the same one."""
    package = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    spec = package and PathFinder.find_spec(_CORE, package.submodule_search_locations)
    if not spec or not spec.loader:
        return import_module(_PACKAGE)  # it is there already, or keeps its core elsewhere
    module = module_from_spec(spec)
    sys.modules[_CORE] = module
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    _found = _core()
    PydanticKnownError, SchemaValidator = _found.PydanticKnownError, _found.SchemaValidator
    ValidationError = _found.ValidationError

__all__ = ["PydanticKnownError", "SchemaValidator", "ValidationError"]
