# SPDX-License-Identifier: Apache-2.0
"""What travels between launch() and the workers: by cloudpickle if that is installed, else by pickle.

pickle sends a function or a class as its name in its module. Those of __main__, of a notebook, or inside a
function have no name by which another process finds them; cloudpickle sends them whole."""

import importlib
import io
import pickle
import types
from typing import Any


class _Pickler(pickle.Pickler):
    """Refuses what would be sent as a name in __main__, which is another module in the workers."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{obj.__qualname__} of __main__ cannot be found by the workers: move it into a module, or install "
                f"cloudpickle"
            )
        return NotImplemented


def find_cloudpickle() -> Any:
    """The module, or None."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return None


def dumps(what: object) -> bytes:
    """For pickle.load(). Raises any exception, as pickle does, if something cannot be sent."""
    cloudpickle = find_cloudpickle()
    if cloudpickle is not None:
        packed: bytes = cloudpickle.dumps(what)
        return packed
    file = io.BytesIO()
    _Pickler(file).dump(what)
    return file.getvalue()
