# SPDX-License-Identifier: Apache-2.0
"""The job of this process: who it is, the store, progress, errors, preemption, snapshot."""

import contextlib
import ctypes
import enum
import functools
import json
import math
import operator
import os
import pathlib
import time
import traceback
import types
import weakref
from typing import BinaryIO, Callable, Iterator, NamedTuple, Optional, Protocol, Tuple, Type, TypeVar, Union

from . import _library as c


class Error(RuntimeError):
    """A call of libctworker has failed. `code` is a negative number of ctworker(3)."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> "Tuple[type, Tuple[int, str]]":
        # By itself, pickle would make it of its text alone.
        return type(self), (self.code, str(self))


class PeerError(Error):
    """A rank has died, has failed or has ended the communicator."""


class TimeoutError(Error):  # pylint: disable=redefined-builtin
    """A deadline has passed."""


_KINDS = {-4: TimeoutError, -13: PeerError}


def check(code: int, err: c.Err) -> None:
    if code < 0:
        raise _KINDS.get(code, Error)(code, err.text.decode(errors="replace") or f"error {code}")


def milliseconds(seconds: float) -> int:
    if not 0 < seconds < 2**53:
        raise ValueError(f"a timeout is a number of seconds above 0, not {seconds}")
    return max(1, round(seconds * 1000))


def _key(key: str) -> bytes:
    if "\0" in key:
        raise ValueError(f"the key {key!r} has a NUL, at which the store would cut it")
    return key.encode()


class Phase(enum.IntEnum):
    """What a worker is doing. ctrun looks for the rank that hangs among those that are not waiting in
    COLLECTIVE."""

    STARTING = 0  #: until the first call of progress()
    DATA = 1
    COMPUTE = 2
    COLLECTIVE = 3  #: waits for other ranks
    CHECKPOINT = 4
    DONE = 5  #: the training has ended; a worker that is silent does not hang


class Preemption(NamedTuple):
    """The job is asked to end."""

    signo: int  #: the signal that asks
    deadline: Optional[float]  #: Unix time at which workers are killed; None = never

    @property
    def seconds(self) -> float:
        """From now until workers are killed."""
        return math.inf if self.deadline is None else max(0.0, self.deadline - time.time())


class Closable(Protocol):
    """What a job closes before itself."""

    def close(self) -> None: ...


class Job:
    """The place of this process in its job. One thread at a time may use it, and only the process that has made
    it: a fork has the connection of its parent, in which answers would go to the wrong one, and its progress,
    which tells where the parent is.

    The environment is read at once. The store is connected with the first call that needs it."""

    def __init__(self, timeout: float = 300.0):
        """`timeout` in seconds limits connecting and each call of the store."""
        self._handle = ctypes.c_void_p()
        self._pid = os.getpid()
        err = c.Err()
        options = c.JobOptions(milliseconds(timeout), True)
        check(c.library.ctw_job_open(ctypes.byref(options), ctypes.byref(self._handle), ctypes.byref(err)), err)
        env = c.library.ctw_job_env(self._handle).contents
        #: this rank, and how many there are
        self.rank: int = env.rank
        self.world_size: int = env.world_size
        #: the same on this machine
        self.local_rank: int = env.local_rank
        self.local_world_size: int = env.local_world_size
        #: this machine, and how many there are
        self.node_rank: int = env.node_rank
        self.node_count: int = env.node_count
        #: 0 at first, one more with each restart
        self.generation: int = env.generation
        #: where the store listens
        self.master_addr: str = env.master_addr.decode(errors="replace")
        self.master_port: int = env.master_port
        #: the id of the job
        self.run_id: str = env.run_id.decode(errors="replace")
        #: the index of this worker's GPU among those that it sees
        self.device_index: int = env.device_index
        #: False if no launcher has started this process; it is then alone
        self.launched: bool = env.launched
        self._snapshot = os.fsdecode(env.snapshot)
        self._phase = Phase.COMPUTE
        self._step = 0
        # They use the job's memory, so they must end before it does.
        self.communicators: "weakref.WeakSet[Closable]" = weakref.WeakSet()

    @property
    def handle(self) -> ctypes.c_void_p:
        """For calls that any process may make."""
        if self.closed:
            raise ValueError("the job is closed")
        return self._handle

    @property
    def own_handle(self) -> ctypes.c_void_p:
        """For calls that a fork must leave to the process that has made the job."""
        if self.forked:
            raise ValueError(f"process {self._pid} has made this job; its fork {os.getpid()} needs a Job() of its own")
        return self.handle

    @property
    def closed(self) -> bool:
        """Has close() been called?"""
        return not self._handle

    @property
    def forked(self) -> bool:
        """Is this process a fork of the one that has made the job?"""
        return self._pid != os.getpid()

    def close(self) -> None:
        """Closes the job's communicators, too. Repeated calls are allowed. In a fork it leaves alone what the
        parent still uses."""
        for communicator in list(self.communicators):
            communicator.close()
        if not self.forked:
            c.library.ctw_job_free(self._handle)
        self._handle = ctypes.c_void_p()

    def __enter__(self) -> "Job":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        self.close()

    # ---- progress

    def progress(
        self,
        step: int,
        *,
        loss: Optional[float] = None,
        samples_per_s: Optional[float] = None,
        total: Optional[int] = None,
        phase: Phase = Phase.COMPUTE,
    ) -> None:
        """Says that step `step`, counted from 0, is being computed, so that `step` steps are done: at the end of the
        body of a loop over `step` it is called with step + 1. `loss` and `samples_per_s` are shown by ctrun-stat and
        by the live page, and `total`, how many steps there are in all, lets ctrun tell the time left. Costs about a
        microsecond; does nothing without a launcher."""
        step = operator.index(step)  # that of numpy is no int
        if not 0 <= step < 2**63:
            raise ValueError(f"step {step} is not from 0 to 2**63 - 1")
        handle = self.own_handle
        self._step, self._phase = step, phase
        if loss is not None or samples_per_s is not None:
            c.library.ctw_progress_metrics(
                handle,
                math.nan if loss is None else float(loss),
                math.nan if samples_per_s is None else float(samples_per_s),
            )
        if total is not None:
            c.library.ctw_progress_total(handle, operator.index(total))
        c.library.ctw_progress(handle, phase, step)

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """What this process does until the end of the block; afterwards it does what it did before."""
        handle, before = self.own_handle, self._phase
        self._phase = phase
        c.library.ctw_progress(handle, phase, self._step)
        try:
            yield
        finally:
            self._phase = before
            if not self.forked:  # a fork that is made in the block may leave it, too
                c.library.ctw_progress(self.handle, before, self._step)

    # ---- the store

    def set(self, key: str, value: bytes) -> None:
        """Writes a key. Keys of an older generation are never seen."""
        err = c.Err()
        check(c.library.ctw_job_set(self.own_handle, _key(key), value, len(value), ctypes.byref(err)), err)

    def get(self, key: str) -> bytes:
        """Returns the value of the key, and waits until somebody has set it. TimeoutError after the `timeout` of the
        job, 300 s by default."""
        err, value, size = c.Err(), ctypes.c_void_p(), ctypes.c_size_t()
        code = c.library.ctw_job_get(
            self.own_handle, _key(key), ctypes.byref(value), ctypes.byref(size), ctypes.byref(err)
        )
        check(code, err)
        try:
            return ctypes.string_at(value, size.value)
        finally:
            c.libc.free(value)

    def add(self, key: str, delta: int) -> int:
        """Adds to the number that the key has, 0 if it is new, and returns the sum."""
        err, total = c.Err(), ctypes.c_int64()
        delta = operator.index(delta)
        if not -(2**63) <= delta < 2**63:  # ctypes would cut it
            raise OverflowError(f"{delta} does not fit into 64 bits")
        check(c.library.ctw_job_add(self.own_handle, _key(key), delta, ctypes.byref(total), ctypes.byref(err)), err)
        return total.value

    # ---- the end, and what stays

    def report_error(self, reason: Union[str, BaseException], *, permanent: bool = False) -> None:
        """Tells the launcher why this process is about to fail. `permanent` says that a restart would
        meet the same error, so ctrun does not restart the job."""
        report_error(reason, permanent=permanent, job=self)

    def preemption(self) -> Optional[Preemption]:
        """Returns what this rank knows of a request to end the job, or None. Costs two system calls. Ranks hear of
        it at different times; stop_together() tells all of them in the same step.

        From the first call on, SIGTERM and SIGUSR1 do not end this process if they come with such a request.
        Without one, as when another rank has failed, they do. An action of the program's own stays. The first call
        is best made on the main thread (ctworker(3), ctw_preempt_outlive)."""
        return preemption()

    def snapshot(self) -> Optional[BinaryIO]:
        """Opens the file in memory that outlives this process until the job ends, for reading and
        writing at any place. It is shared by the workers of this machine and empty at first. None if
        the job cannot restart."""
        return open(self._snapshot, "r+b") if self._snapshot else None  # pylint: disable=consider-using-with


#: The process that outlives a request to end the job; 0 = none does.
_outlives = 0


def preemption() -> Optional[Preemption]:
    """As Job.preemption(), without a job."""
    global _outlives  # pylint: disable=global-statement
    path = os.environ.get("CTRUN_PREEMPT_FILE", "")
    if not path:
        return None
    if _outlives != os.getpid():
        err = c.Err()
        check(c.library.ctw_preempt_outlive(ctypes.byref(err)), err)
        _outlives = os.getpid()
    try:
        notice = json.loads(pathlib.Path(path).read_bytes())
        deadline = notice.get("deadline")
        return Preemption(int(notice.get("signo", 0)), float(deadline) if deadline else None)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def report_error(
    reason: Union[str, BaseException], *, permanent: bool = False, job: Optional[Job] = None
) -> None:
    """As Job.report_error(), also while there is no job. Never raises: another error is under way. `job` is by
    default that of this process, if it is open."""
    if isinstance(reason, BaseException):
        # The traceback goes to standard error as ever, whose last lines ctrun quotes.
        text = "".join(traceback.format_exception_only(type(reason), reason)).rstrip("\n")
    else:
        text = str(reason)
    job = job or _current
    handle = None if job is None or job.closed else job.handle
    name = "ctw_job_report_permanent_error" if permanent else "ctw_job_report_error"
    getattr(c.library, name)(handle, text.encode(errors="replace").replace(b"\0", b"?"), None)


_F = TypeVar("_F", bound=Callable[..., object])

#: What job() has opened.
_current: Optional[Job] = None


def record(function: _F) -> _F:
    """Decorates a main function: an exception that leaves it is reported to the launcher, which
    shows it as the reason of the failure."""

    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            report_error(error)
            raise

    return wrapper  # type: ignore[return-value]


def job() -> Job:
    """The job of this process, opened with the first call, and with the first after its close() or in a fork."""
    global _current  # pylint: disable=global-statement
    if _current is None or _current.closed or _current.forked:
        _current = Job()
    return _current


def progress(
    step: int,
    *,
    loss: Optional[float] = None,
    samples_per_s: Optional[float] = None,
    total: Optional[int] = None,
    phase: Phase = Phase.COMPUTE,
) -> None:
    """As Job.progress(), for the job of this process."""
    job().progress(step, loss=loss, samples_per_s=samples_per_s, total=total, phase=phase)


def phase(what: Phase) -> "contextlib.AbstractContextManager[None]":
    """As Job.phase(), for the job of this process."""
    return job().phase(what)
