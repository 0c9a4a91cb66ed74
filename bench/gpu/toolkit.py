# SPDX-License-Identifier: Apache-2.0
"""Finds what a build needs: NVIDIA's compiler and libraries, as a toolkit, a distribution's packages or
Python wheels install them, and the few libraries of train and ctrun."""

import contextlib
import glob
import os
import pathlib
import shutil
import site
import subprocess
import sys
import sysconfig

# What train and ctrun need beside the C library: header, files of the library, what else it wants. The
# first that is found is taken.
PACKAGES = {
    "cjson": ("cjson/cJSON.h", ("libcjson.a", "libcjson.so.1", "libcjson.so")),
    "zlib": ("zlib.h", ("libz.a", "libz.so.1", "libz.so")),
    "uv": ("uv.h", ("libuv_a.a", "libuv.a", "libuv.so.1", "libuv.so")),
    "sodium": ("sodium.h", ("libsodium.a", "libsodium.so.23", "libsodium.so")),
}
# Beside the header, relative to its folder.
PACKAGE_HEADERS = {
    "cjson": ("cjson/cJSON.h",), "zlib": ("zlib.h", "zconf.h"), "uv": ("uv.h", "uv/*.h", "uv/*/*.h"),
    "sodium": ("sodium.h", "sodium/*.h"),
}  # fmt: skip


# Which tree was packed, for a machine to which the tree comes without its history.
COMMIT = "commit"


def _existing(paths):
    return [path for path in dict.fromkeys(pathlib.Path(path).absolute() for path in paths) if path.is_dir()]


def _wheel_folders():
    """Folders of nvidia-* wheels, of this Python and of the one that holds PyTorch."""
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages(), site.getusersitepackages()]
    other = shutil.which("python3")
    if other and os.path.realpath(other) != os.path.realpath(sys.executable):
        # -I: nothing of the folder that this was started in.
        words = [other, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            asked = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, timeout=10)
            roots.append(asked.stdout.strip())
    return [folder for root in dict.fromkeys(roots) if root for folder in sorted(glob.glob(f"{root}/nvidia/*"))]


def _toolkit_roots():
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    if nvcc:
        roots.append(pathlib.Path(nvcc).resolve().parent.parent)
    roots += ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True), "/opt/cuda"]
    return _existing(root for root in roots if root)


def _system_folders():
    found = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
             "/usr/local/lib"]  # fmt: skip
    return _existing(found)


def _first_file(folders, names):
    """The library by the first of its names that a folder has, also with a version behind it."""
    for folder in folders:
        for name in names:
            for path in (folder / name, *sorted(folder.glob(f"{name}.*"), reverse=True)):
                if path.is_file() and not path.name.endswith(".alt"):
                    return path
    return None


class Toolkit:
    """What was found; None for what was not."""

    def __init__(self, deps):
        roots, wheels = _toolkit_roots(), _wheel_folders()
        self.include = _existing([*(root / "include" for root in roots), *(f"{w}/include" for w in wheels), "/usr/include"])
        self.lib = _existing([
            *(root / part for root in roots for part in ("lib64", "lib", "targets/x86_64-linux/lib")),
            *(f"{wheel}/lib" for wheel in wheels),
        ])  # fmt: skip
        self.lib += _system_folders()
        self.nvcc = self.program("nvcc", roots + [pathlib.Path(w) for w in wheels])
        self.sanitizer = self.program("compute-sanitizer", roots)
        self.cublaslt = _first_file(self.lib, ["libcublasLt.so"])
        self.nccl = _first_file(self.lib, ["libnccl.so"])
        self.cudart = _first_file(self.lib, ["libcudart.so"])
        self.cudart_static = _first_file(self.lib, ["libcudart_static.a"])
        self.packages = {name: self._package(name, deps) for name in PACKAGES}
        packed = deps / COMMIT
        self.commit = packed.read_text(encoding="utf-8").strip() if packed.is_file() else ""

    @staticmethod
    def program(name, roots):
        for root in roots:
            for path in (root / "bin" / name, root / "compute-sanitizer" / name):
                if path.is_file() and os.access(path, os.X_OK):
                    return path
        found = shutil.which(name)
        return pathlib.Path(found) if found else None

    def header(self, name):
        """The folder that has it."""
        return next((folder for folder in self.include if (folder / name).is_file()), None)

    def _package(self, name, deps):
        """(folder of headers, library), or None."""
        header, files = PACKAGES[name]
        for include, libs in (
            (deps / "include", [deps / "lib"]),
            *((pathlib.Path(folder), _system_folders()) for folder in ("/usr/include", "/usr/local/include")),
        ):
            library = _first_file(_existing(libs), files)
            if (include / header).is_file() and library:
                return include, library
        return None

    def words(self):
        """For the report."""
        found = {name: str(getattr(self, name)) for name in
                 ("nvcc", "sanitizer", "cublaslt", "nccl", "cudart", "cudart_static") if getattr(self, name)}  # fmt: skip
        found.update({name: str(found_at[1]) for name, found_at in self.packages.items() if found_at})
        return found


def pack(deps, commit):
    """Copies the packages of this machine to where a build on a machine without them finds them."""
    kit = Toolkit(pathlib.Path("/nonexistent"))
    missing = [name for name, found in kit.packages.items() if found is None]
    if missing:
        raise FileNotFoundError(f"not installed here: {', '.join(missing)} (tools/setup installs them)")
    for name, (include, library) in kit.packages.items():
        for pattern in PACKAGE_HEADERS[name]:
            for source in include.glob(pattern):
                target = deps / "include" / source.relative_to(include)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        (deps / "lib").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, deps / "lib" / library.name)
    (deps / COMMIT).write_text(f"{commit}\n", encoding="utf-8")
    return sum(path.stat().st_size for path in deps.rglob("*") if path.is_file())
