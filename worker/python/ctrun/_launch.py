# SPDX-License-Identifier: Apache-2.0
"""launch(): a function and its arguments travel to the workers in a file, their results come back
in files."""

import json
import os
import pathlib
import pickle
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._send import dumps, find_cloudpickle

_T = TypeVar("_T")

#: Becomes ctrun, which is asked to end when the process (and in it the thread) ends that waits for it: a notebook
#: whose kernel is killed would leave a job that nobody ends. preexec_fn is not safe in a program with threads.
_STARTER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them
    signal.signal(number, signal.SIG_DFL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class LaunchError(RuntimeError):
    """The job has failed. `exit_code` is that of ctrun(1), and `report` is what ctreport(5)
    describes, if ctrun has written it. If a function has raised, `cause` is its exception, as far as
    it could be sent here."""

    def __init__(self, text: str, exit_code: int, report: Optional[Dict[str, Any]], cause: Optional[BaseException]):
        super().__init__(text)
        self.exit_code = exit_code
        self.report = report
        self.cause = cause

    def __reduce__(self) -> "Tuple[type, Tuple[object, ...]]":
        # By itself, pickle would make it of its text alone.
        return type(self), (str(self), self.exit_code, self.report, self.cause)


def program() -> str:
    """The path of the program ctrun: that of this package's environment, else that of PATH."""
    # `pip install --user` has a folder of its own for programs.
    by_user = pathlib.Path(site.getusersitepackages()) in pathlib.Path(__file__).parents
    scripts = sysconfig.get_path("scripts", f"{os.name}_user") if by_user else sysconfig.get_path("scripts")
    beside = pathlib.Path(scripts) / "ctrun"
    found = os.environ.get("CTRUN_PROGRAM") or (str(beside) if beside.exists() else shutil.which("ctrun"))
    if found is None:
        raise FileNotFoundError("the program ctrun is neither beside Python nor in PATH")
    return found


def _pack(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    try:
        dumps(function)
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        if find_cloudpickle() is not None:
            raise TypeError(f"{name!r} cannot be sent to the workers: {error}") from error
        raise TypeError(
            f"{name!r} cannot be imported by the workers: move it to the top level of a module, or install cloudpickle"
        ) from error
    try:
        return dumps((function, tuple(args), dict(kwargs)))
    except Exception as error:
        raise TypeError(f"the arguments cannot be sent to the workers: {error}") from error


def _read(path: pathlib.Path) -> Any:
    try:
        file = path.open("rb")
    except OSError:
        return None
    with file:
        try:
            return pickle.load(file)
        except Exception as error:  # what a worker has returned may need a module, or a file, that is not here
            return ("unreadable", error)


#: Options that name machines.
_MACHINES = ("--hosts", "--hostfile", "--nnodes")


def _means(word: str, option: str) -> bool:
    """Is the word the option, or a beginning of its name with which ctrun may take it?"""
    name = word.partition("=")[0].replace("_", "-")
    return len(name) >= len("--rep") and option.startswith(name)


def _names_machines(word: str) -> bool:
    return word.startswith("-H") or word.partition("=")[0] == "--nn" or any(_means(word, option) for option in _MACHINES)


def _without_report(options: Sequence[str]) -> Tuple[List[str], Optional[str]]:
    """Takes --report out of the options, and gives its file: launch() itself reads the report."""
    left: List[str] = []
    report: Optional[str] = None
    words = iter(options)
    for word in words:
        _, equals, value = word.partition("=")
        if _means(word, "--detach"):
            raise ValueError("launch() waits for the job, so --detach has no meaning here")
        if not _means(word, "--report"):
            left.append(word)
        elif equals:
            report = value
        else:
            report = next(words, None)
            if report is None:
                raise ValueError("in `options`, a file must follow --report")
    return left, report


def _copy_report(place: pathlib.Path, report: str) -> None:
    """As ctrun, this replaces only what is JSON or empty: it may be the program that is named by mistake."""
    target = pathlib.Path(report)
    try:
        if target.is_file() and target.stat().st_size > 0:
            json.loads(target.read_bytes())
        target.write_bytes((place / "report.json").read_bytes())
    except ValueError:
        warnings.warn(f"the report of the job was not written, because {report} has something else", stacklevel=3)
    except OSError as error:  # what the job has returned is worth more
        warnings.warn(f"the report of the job could not be written to {report}: {error}", stacklevel=3)


def _wait(process: "subprocess.Popen[bytes]", timeout: Optional[float]) -> int:
    """Ends the job if the wait is interrupted."""
    try:
        return process.wait(timeout)
    except BaseException:
        process.terminate()  # ctrun ends its workers, and kills those that do not end in time
        try:
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # at a second signal it kills them at once
            process.wait()
            raise
        raise


def launch(
    function: Callable[..., _T],
    args: Sequence[object] = (),
    kwargs: Optional[Mapping[str, object]] = None,
    *,
    nproc: Union[int, str] = 1,
    hosts: Optional[Sequence[str]] = None,
    folder: Union[None, str, "os.PathLike[str]"] = None,
    max_restarts: int = 0,
    options: Sequence[str] = (),
    env: Optional[Mapping[str, str]] = None,
    timeout: Optional[float] = None,
) -> List[_T]:
    """Calls `function(*args, **kwargs)` on every rank of a new job, and returns what the calls return,
    by rank.

    nproc: ranks of each machine, as --nproc-per-node.
    hosts: machines, as --hosts has them ("a", "b:2"). This Python, with this package, must be at the
        same place on each.
    folder: where the files of function and results are put for the time of the call. With `hosts`
        all machines must see it at the same path, and only this user may write there, because a
        worker runs what it finds. Unless `hosts` or `options` names machines, the job is one of this
        machine alone (--standalone), also where a scheduler has given this process a place among several.
    max_restarts: as --max-restarts.
    options: more options of ctrun(1), but not --detach.
    env: variables of ctrun and of the workers of all machines, besides those of this process. Those
        that a machine has already stay as they are there. Those named CTRUN_... are for ctrun alone.
    timeout: after so many seconds the job is ended and subprocess.TimeoutExpired is raised.

    What the workers print is shown. The job is ended when this process ends, however it does. Raises
    LaunchError if the job fails; its text is the first failure as ctrun tells it."""
    for what, value in (("args", args), ("hosts", hosts), ("options", options)):
        if isinstance(value, (str, bytes)):
            raise TypeError(f"`{what}` is a list or a tuple, and not a text: [{value!r}]")
    if hosts is not None and folder is None:
        raise ValueError("with `hosts`, `folder` must name a folder that all machines share")
    more, report = _without_report(options)
    packed = _pack(function, args, kwargs or {})
    with tempfile.TemporaryDirectory(prefix="ctrun-launch-", dir=folder) as inner:
        place = pathlib.Path(inner).absolute()
        # The workers import what this process can; they must know where before they unpack the rest.
        path = [os.path.abspath(p) for p in sys.path]
        # ctrun decides which of its own variables workers have: not the token, for example.
        theirs = {name: value for name, value in (env or {}).items() if not name.startswith(("CTRUN_", "PMI_"))}
        (place / "job").write_bytes(pickle.dumps((path, theirs)) + packed)
        ctrun = shutil.which(program())
        if ctrun is None:
            raise FileNotFoundError(f"{program()} cannot be executed")
        command = [ctrun, "--nproc-per-node", str(nproc), "--max-restarts", str(max_restarts)]
        if hosts is not None:
            command += ["--hosts", ",".join(hosts)]
        elif not any(map(_names_machines, more)):
            command += ["--standalone"]
        command += [*more, "--report", str(place / "report.json"), "--no-python"]
        command += ["--", sys.executable, "-u", "-m", "ctrun._worker", str(place)]
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(os.getpid())]
        variables = {**os.environ, **(env or {})}
        with subprocess.Popen(starter + command, env=variables, stdin=subprocess.DEVNULL) as process:
            try:
                code = _wait(process, timeout)
            finally:
                if report is not None:
                    _copy_report(place, report)
        return _collect(place, code)


def _collect(place: pathlib.Path, code: int) -> List[Any]:
    try:
        report = json.loads((place / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        report = None
    if code != 0:
        raise _failure(place, code, report)
    try:
        world = int((place / "world").read_text(encoding="ascii"))
    except FileNotFoundError:  # sys.exit(0), say
        why = "the job has succeeded, but rank 0 has ended without a result"
        raise LaunchError(why, code, report, None) from None
    results = []
    for rank in range(world):
        outcome = _read(place / f"result-{rank}")
        if outcome is None or outcome[0] != "returned":
            why = "is not here" if outcome is None else f"cannot be read: {outcome[1]}"
            raise LaunchError(f"the job has succeeded, but the result of rank {rank} {why}", code, report, None)
        results.append(outcome[1])
    return results


def _failure(place: pathlib.Path, code: int, report: Optional[Dict[str, Any]]) -> LaunchError:
    first = (report or {}).get("first_failure") or {}
    outcome = _read(place / f"result-{first.get('rank')}") if first else None
    cause = outcome[1] if outcome is not None and outcome[0] == "raised" else None
    text = f"ctrun ended with exit code {code}" if code >= 0 else f"ctrun was killed by signal {-code}"
    if first:
        where = f"rank {first['rank']}" if first.get("rank", -1) >= 0 else "a machine"
        text = f"{where} failed on {first.get('host') or 'this machine'}: {first.get('what') or text}"
        for part in (first.get("message"), first.get("traceback"), first.get("tail")):
            if part and part not in text:
                text += "\n" + part.rstrip("\n")
    elif report and report.get("why"):
        text = f"{report['why']} (exit code {code})"
    error = LaunchError(text, code, report, cause)
    error.__cause__ = cause
    return error


__all__ = ["LaunchError", "launch", "program"]
