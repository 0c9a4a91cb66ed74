# SPDX-License-Identifier: Apache-2.0
"""Collectives of all ranks on the CPU: shared memory inside a machine, TCP between machines."""

import ctypes
import os
import time
import types
from typing import TYPE_CHECKING, Any, Optional, Type

from . import _library as c
from ._job import Job, check, job as current_job, milliseconds, preemption

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
        """This rank; it is that of the job."""
        return self._job.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
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
        """Returns when all ranks have called it."""
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


#: Seconds. A request to end comes seconds to minutes before the end.
_ASK_EVERY = 0.05

#: Seconds. A rank may validate or save for as long as it likes while the others wait; what hangs is for ctrun to find.
_FOREVER = 1e7


class _Agreement(Communicator):
    """Whether the ranks stop. About 20 times a second they add up who has heard of a request to end; other calls cost
    nothing. In each exchange rank 0 says how many calls later the next one is, so all exchange in the same calls."""

    def __init__(self) -> None:
        super().__init__(timeout=_FOREVER)
        self._calls = 0
        self._next = 1
        self._last, self._last_time = 0, 0.0
        self._stop = False

    @property
    def closed(self) -> bool:
        """Is another one needed, because the job has been closed?"""
        return not self._handle

    def _interval(self) -> int:
        """How many calls take _ASK_EVERY, by the time of those since the last exchange. A few fast ones at the start
        shall not put off the next exchange for long."""
        calls, seconds = self._calls - self._last, time.monotonic() - self._last_time
        is_first = self._last == 0
        self._last, self._last_time = self._calls, time.monotonic()
        return 1 if is_first else max(1, min(8 * calls, int(_ASK_EVERY * calls / (seconds + 1e-9))))

    def stop(self) -> bool:
        """As stop_together()."""
        self._calls += 1
        if not self._stop and self._calls >= self._next:
            heard, interval = preemption() is not None, self._interval() if self.rank == 0 else 0
            numbers = (ctypes.c_float * 2)(float(heard), float(interval))
            err = c.Err()
            check(c.library.ctw_comm_all_reduce(self._open, numbers, numbers, 2, ctypes.byref(err)), err)
            self._stop, self._next = numbers[0] > 0, self._calls + int(numbers[1])
        return self._stop


#: What stop_together() has opened.
_agreement: Optional[_Agreement] = None


def stop_together() -> bool:
    """Whether all ranks stop now, because the job is asked to end: from one call on it is True, and that is the same
    call on every rank. All ranks call it once in each step. If each looked for itself, they would leave after
    different steps, and one would wait for another that has gone.

    It does what preemption() does to signals. The first call opens a Communicator, and in some 20 calls a second all
    ranks wait for each other. Always False without ctrun."""
    global _agreement  # pylint: disable=global-statement
    if not os.environ.get("CTRUN_PREEMPT_FILE"):
        return False
    if _agreement is None or _agreement.closed:
        _agreement = _Agreement()
    return _agreement.stop()
