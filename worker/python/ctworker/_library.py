# SPDX-License-Identifier: Apache-2.0
"""libctworker as ctypes sees it: the declarations of ctworker.h that this package uses."""

import ctypes
import os
import pathlib
import sysconfig

PATH_MAX, HOST_MAX, RUN_ID_MAX, ERR_TEXT_MAX = 4096, 256, 256, 1024


class Env(ctypes.Structure):
    """struct ctw_env"""

    _fields_ = [
        ("rank", ctypes.c_int),
        ("world_size", ctypes.c_int),
        ("local_rank", ctypes.c_int),
        ("local_world_size", ctypes.c_int),
        ("node_rank", ctypes.c_int),
        ("node_count", ctypes.c_int),
        ("generation", ctypes.c_int),
        ("master_port", ctypes.c_uint16),
        ("launched", ctypes.c_bool),
        ("store_is_external", ctypes.c_bool),
        ("master_addr", ctypes.c_char * HOST_MAX),
        ("run_id", ctypes.c_char * RUN_ID_MAX),
        ("error_file", ctypes.c_char * PATH_MAX),
        ("snapshot", ctypes.c_char * PATH_MAX),
        ("device_index", ctypes.c_int),
        ("device_own", ctypes.c_bool),
        ("device_set", ctypes.c_bool),
    ]


class Err(ctypes.Structure):
    """struct ct_err"""

    _fields_ = [
        ("code", ctypes.c_int),
        ("sys", ctypes.c_int),
        ("text", ctypes.c_char * ERR_TEXT_MAX),
    ]


class JobOptions(ctypes.Structure):
    """struct ctw_job_options"""

    _fields_ = [("timeout_ms", ctypes.c_int64), ("lazy", ctypes.c_bool)]


class CommOptions(ctypes.Structure):
    """struct ctw_comm_options"""

    _fields_ = [
        ("backend", ctypes.c_int),
        ("timeout_ms", ctypes.c_int64),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("order", ctypes.c_int),
        ("tree_sum", ctypes.c_void_p),
        ("tree_sum_data", ctypes.c_void_p),
    ]


_NAME = "libctworker.so.0"
#: Where meson-python puts libraries into a wheel.
_WHEEL_FOLDER = ".ctrun.mesonpy.libs"
_ERR = ctypes.POINTER(Err)
_SIGNATURES = {
    "ctw_job_open": (
        ctypes.c_int,
        [ctypes.POINTER(JobOptions), ctypes.POINTER(ctypes.c_void_p), _ERR],
    ),
    "ctw_job_free": (None, [ctypes.c_void_p]),
    "ctw_job_env": (ctypes.POINTER(Env), [ctypes.c_void_p]),
    "ctw_job_set": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, _ERR],
    ),
    "ctw_job_get": (
        ctypes.c_int,
        [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_size_t),
            _ERR,
        ],
    ),
    "ctw_job_add": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), _ERR],
    ),
    "ctw_job_report_error": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, _ERR]),
    "ctw_job_report_permanent_error": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, _ERR]),
    "ctw_preempt_outlive": (ctypes.c_int, [_ERR]),
    "ctw_progress": (None, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]),
    "ctw_progress_metrics": (None, [ctypes.c_void_p, ctypes.c_double, ctypes.c_double]),
    "ctw_progress_total": (None, [ctypes.c_void_p, ctypes.c_int64]),
    "ctw_comm_open": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.POINTER(CommOptions), ctypes.POINTER(ctypes.c_void_p), _ERR],
    ),
    "ctw_comm_free": (None, [ctypes.c_void_p]),
    "ctw_comm_abort": (None, [ctypes.c_void_p]),
    "ctw_comm_all_reduce": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, _ERR],
    ),
    "ctw_comm_broadcast": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, _ERR],
    ),
    "ctw_comm_barrier": (ctypes.c_int, [ctypes.c_void_p, _ERR]),
}


def _load() -> ctypes.CDLL:
    """The library of the wheel; else that of the system."""
    name = os.environ.get("CTWORKER_LIBRARY", "")
    for folder in (pathlib.Path(__file__).parent.parent, pathlib.Path(sysconfig.get_path("platlib"))):
        path = folder / _WHEEL_FOLDER / _NAME
        if not name and path.exists():
            name = str(path)
    try:
        library = ctypes.CDLL(name or _NAME)
    except OSError as error:
        raise ImportError(
            f"ctworker needs libctworker, which cannot be loaded: {error}. Install the wheel of ctrun, "
            f"or let CTWORKER_LIBRARY name the file."
        ) from None
    for function_name, (result, arguments) in _SIGNATURES.items():
        try:
            function = getattr(library, function_name)
        except AttributeError:
            raise ImportError(
                f"{name or _NAME} is of another version of ctrun than ctworker: it has no {function_name}"
            ) from None
        function.restype = result
        function.argtypes = arguments
    return library


library = _load()
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
libc.free.restype = None
