# SPDX-License-Identifier: Apache-2.0
"""Collectives of all ranks on the CPU: shared memory inside a machine, TCP between machines."""

import ctypes
import types
from typing import TYPE_CHECKING, Any, Optional, Type

from . import _library as c
from ._job import Job, check, job as current_job, milliseconds

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Floats = numpy.typing.NDArray[numpy.float32]
    Array = numpy.typing.NDArray[Any]


def _pointer(array: "Array", writable: bool) -> int:
    if not hasattr(array, "flags") or not hasattr(array, "ctypes"):
        raise TypeError(f"a numpy array is needed, not {type(array).__name__}; a tensor on the CPU has .numpy()")
    if array.dtype.hasobject:
        raise TypeError("the array has Python objects, which have no meaning in another process")
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous; numpy.ascontiguousarray() makes a copy that is")
    if writable and not array.flags.writeable:
        raise ValueError("the array cannot be written")
    return array.ctypes.data


class Communicator:
    """All ranks of the job. Opening and every call are collective: all ranks make the same calls in
    the same order. An Error ends the communicator; a TypeError or a ValueError is raised before the other ranks
    hear anything. One thread at a time may use it."""

    def __init__(self, job: Optional[Job] = None, *, timeout: float = 600.0):
        """`timeout` in seconds limits the wait in one call."""
        self._job = job if job is not None else current_job()
        self._handle = ctypes.c_void_p()
        err = c.Err()
        options = c.CommOptions(timeout_ms=milliseconds(timeout))
        code = c.library.ctw_comm_open(
            self._job.own_handle, ctypes.byref(options), ctypes.byref(self._handle), ctypes.byref(err)
        )
        check(code, err)
        self._job.communicators.add(self)

    @property
    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ValueError("the communicator is closed")
        if self._job.forked:
            raise ValueError("only the process that has opened the communicator may use it, and no fork of it")
        return self._handle

    @property
    def rank(self) -> int:
        return self._job.rank

    @property
    def size(self) -> int:
        return self._job.world_size

    def all_reduce(self, array: "Floats", out: "Optional[Floats]" = None) -> "Floats":
        """Returns the sum over all ranks, with the same bits on each: in `out`, which may be `array`
        itself, or in a new array. Both must be contiguous float32 arrays of one shape."""
        import numpy  # pylint: disable=import-outside-toplevel

        source = _pointer(array, False)
        if array.dtype != numpy.float32:
            raise TypeError(f"all_reduce adds float32, not {array.dtype}")
        result = numpy.empty_like(array) if out is None else out
        target = _pointer(result, True)
        if result.dtype != array.dtype or result.shape != array.shape:
            raise ValueError("`out` must have the type and the shape of `array`")
        if source != target and numpy.may_share_memory(array, result):
            raise ValueError("`out` has a part of `array`: it must be that array itself, or have memory of its own")
        err = c.Err()
        code = c.library.ctw_comm_all_reduce(self._open, source, target, array.size, ctypes.byref(err))
        check(code, err)
        return result

    def broadcast(self, array: "Array", root: int = 0) -> None:
        """Copies the bytes of rank `root`'s array into those of the others, which have its size."""
        err = c.Err()
        code = c.library.ctw_comm_broadcast(
            self._open, _pointer(array, self.rank != root), array.nbytes, root, ctypes.byref(err)
        )
        check(code, err)

    def barrier(self) -> None:
        err = c.Err()
        check(c.library.ctw_comm_barrier(self._open, ctypes.byref(err)), err)

    def abort(self) -> None:
        """Ends the communicator for every rank: their calls raise PeerError at once."""
        c.library.ctw_comm_abort(self._open)

    def close(self) -> None:
        """Waits for nobody. Repeated calls are allowed."""
        if not self._job.forked:
            c.library.ctw_comm_free(self._handle)
        self._handle = ctypes.c_void_p()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        self.close()
