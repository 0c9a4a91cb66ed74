# SPDX-License-Identifier: Apache-2.0
"""What the machine is: a figure without it is worth nothing."""

import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess

from .build import TOP


def _said(*argv, limit=15):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    found = re.search(r"model name\s*:\s*(.*)", text)
    return found.group(1) if found else platform.machine()


def _version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(toolkit):
    fields = ("name", "uuid", "compute_cap", "driver_version", "memory.total", "clocks.max.sm", "power.limit")
    gpus = _said("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader").splitlines()
    packages = {name: _version_of(name) for name in ("torch", "jax", "triton", "nvidia-cublas", "nvidia-nccl-cu13")}
    nvcc = _said(str(toolkit.nvcc), "--version") if toolkit.nvcc else ""
    return {
        "gpus": [dict(zip(fields, (value.strip() for value in line.split(",")))) for line in gpus],
        "processor": _processor(), "processors": len(os.sched_getaffinity(0)), "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "") if hasattr(platform, "freedesktop_os_release") else "",
        "python": platform.python_version(), "packages": {name: v for name, v in packages.items() if v},
        "nvcc": nvcc.splitlines()[-2] if len(nvcc.splitlines()) > 1 else nvcc,
        "found": toolkit.words(), "commit": commit() or toolkit.commit,
    }  # fmt: skip


def commit():
    """"" where the tree came without its history."""
    return _said("git", "-C", str(TOP), "describe", "--always", "--dirty")


def architecture(described, visible=""):
    """As nvcc's sm_NN, of the first GPU that programs see; that of the H200 where there is none. `visible`
    is CUDA_VISIBLE_DEVICES: numbers or UUIDs."""
    gpus, first = described["gpus"], visible.split(",")[0].strip()
    chosen = gpus[int(first)] if first.isdigit() and int(first) < len(gpus) else None
    chosen = chosen or next((gpu for gpu in gpus if first and gpu.get("uuid", "").startswith(first)), None)
    chosen = chosen or (gpus[0] if gpus else {})
    capability = chosen.get("compute_cap", "")
    digits = re.sub(r"\D", "", capability)
    return digits or "90"
