# SPDX-License-Identifier: Apache-2.0
"""What launch() starts on each rank: `python -m ctrun._worker FOLDER`."""

import os
import pathlib
import pickle
import sys
import traceback
from typing import Tuple

import ctworker

from ._send import dumps


def _write(path: pathlib.Path, data: bytes) -> None:
    """The reader sees all of it or nothing."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)


def _run(folder: pathlib.Path) -> Tuple[str, object]:
    with (folder / "job").open("rb") as file:
        path, variables = pickle.load(file)
        # Another machine has not got them: ctrun hands on only those that it knows to concern the workers.
        for name, value in variables.items():
            os.environ.setdefault(name, value)
        # In the order of the process that has called launch(), so that both import the same modules.
        sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
        function, args, kwargs = pickle.load(file)
    return ("returned", function(*args, **kwargs))


def _fail(path: pathlib.Path, error: BaseException) -> int:
    traceback.print_exception(type(error), error, error.__traceback__)
    ctworker.report_error(error)
    try:
        data = dumps(("raised", error))
        pickle.loads(data)  # some exceptions can be packed, but not unpacked
    except Exception:
        data = pickle.dumps(("raised", None))
    _write(path, data)
    return 1


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    rank = os.environ["RANK"]
    path = folder / f"result-{rank}"
    path.unlink(missing_ok=True)  # of an earlier generation
    try:
        outcome = _run(folder)
        try:
            data = dumps(outcome)
        except Exception as error:
            raise TypeError(f"the result of rank {rank} cannot be sent: {error}") from error
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # asyncio.CancelledError, say, or pytest's fail()
        return _fail(path, error)
    _write(path, data)
    if rank == "0":
        _write(folder / "world", os.environ["WORLD_SIZE"].encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
