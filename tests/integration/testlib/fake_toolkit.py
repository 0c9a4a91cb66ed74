# SPDX-License-Identifier: Apache-2.0
"""A CUDA toolkit with nothing behind it but the stand-in for CUDA, cuBLASLt and NCCL, and a root without
the packages that ctrun is usually built with: what tools/gpu-check meets, without a GPU."""

import glob
import os
import unittest

# Files of the -dev packages that tools/setup installs, and the build tools that a bare machine lacks.
_PACKAGES = (
    "/usr/include/uv.h", "/usr/include/uv", "/usr/include/cjson", "/usr/include/zlib.h", "/usr/include/zconf.h",
    "/usr/include/sodium.h", "/usr/include/sodium", "/usr/include/microhttpd.h", "/usr/include/cmocka.h",
    "/usr/include/dnnl*.h", "/usr/lib/*/libuv*.a", "/usr/lib/*/libz.a", "/usr/lib/*/libsodium.a",
    "/usr/lib/*/libcjson.*", "/usr/bin/meson", "/usr/bin/ninja",
)  # fmt: skip

# The kernels are in the stand-in, compiled for the processor: an object without them will do.
_NVCC = """#!/bin/sh
case $1 in --version) echo 'a stand-in for nvcc'; echo 'release 13.0'; echo; exit ;; esac
[ -z "$NVCC_FAILS" ] || { echo 'nvcc fatal   : Unsupported gpu architecture' >&2; exit 1; }
while [ $# -gt 0 ]; do
    [ "$1" != -o ] || to=$2
    shift
done
exec cc -x c -c /dev/null -o "$to"
"""
_SMI = """#!/bin/sh
echo 'Stand-in, GPU-0, 9.0, 580.00, 1024 MiB, 1980 MHz, 700.00 W'
"""


def environment(folder):
    """In which it is found, with one GPU, as on the machine that is lent."""
    one = {"FAKE_GPU_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}
    return {"CUDA_HOME": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **one}


def make(folder, library, include):
    """Writes it into the folder, also over one that an older version of this file has written."""
    for part in ("bin", "lib64"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, text in (("nvcc", _NVCC), ("nvidia-smi", _SMI)):
        (folder / "bin" / name).write_text(text, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    links = {name: library for name in ("libctfakegpu.so", "libcublasLt.so.13", "libcudart.so.13", "libnccl.so.2")}
    for path, target in ((folder / "include", include), *((folder / "lib64" / name, links[name]) for name in links)):
        if not path.is_symlink():
            path.symlink_to(target)
    (folder / "lib64" / "libcudart_static.a").write_text("!<arch>\n", encoding="ascii")


def bare_root(case):
    """The beginning of a command line that runs a program where those packages are not."""
    hidden = [path for pattern in _PACKAGES for path in sorted(glob.glob(pattern))]
    empty = case.tmp / "empty"
    empty.mkdir()
    hide = "".join(f"mount --bind {empty if os.path.isdir(p) else '/dev/null'} {p} && " for p in hidden)
    own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    inside = ("unshare", *own, "--mount", "sh", "-c", f'{hide} exec "$0" "$@"')
    tried = case.run_program(*inside, "true")
    if tried.code != 0:
        raise unittest.SkipTest(f"no mount namespaces here: {tried.err.strip()}")
    return inside
