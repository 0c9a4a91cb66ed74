# SPDX-License-Identifier: Apache-2.0
"""Builds the programs and plug-ins with a C compiler and nvcc alone, on all processors.

What fails is said, in build.log and in the report, and all the rest is built. What has not changed
since the last time in the same folder is not compiled again.
"""

import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import re
import shlex
import threading
import time

from . import process

TOP = pathlib.Path(__file__).resolve().parents[2]

# Files that stand in for each other: those that need what a bare machine lacks, or flags of their own.
NOT_HERE = {
    "kernels/cpu/cpu_gemm_onednn.c", "kernels/cpu/cpu_head16.c", "kernels/open/device_cuda_fallback.c",
    "worker/nccl/comm_nccl_fallback.c", "rendezvous/http/http_load.c", "rendezvous/http/http_uv.c",
    "rendezvous/etcd/etcd_load.c", "rendezvous/etcd/etcd_transfer.c", "rendezvous/etcd/etcd_uv.c",
}  # fmt: skip
# Headers of others, and the package they come from.
FOREIGN = {
    "cjson/cJSON.h": "cjson", "zlib.h": "zlib", "uv.h": "uv", "sodium.h": "sodium", "nccl.h": "nccl",
    "cublasLt.h": "cublaslt", "cuda_runtime_api.h": "cuda", "microhttpd.h": "microhttpd", "dnnl.h": "onednn",
}  # fmt: skip
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)
# Lines of an error that are worth showing first.
ERROR = re.compile(r"error|undefined reference|cannot find|No such file", re.I)


class Sources:
    """Files of the tree, and which packages each needs, also by what it includes."""

    def __init__(self):
        self.needs_of = {}

    def needs(self, path):
        if path not in self.needs_of:
            self.needs_of[path] = frozenset()  # of a circle, which guards allow
            found = set()
            for own, foreign in INCLUDE.findall((TOP / path).read_text(encoding="utf-8")):
                if own and (TOP / own).is_file():
                    found |= self.needs(own)
                elif foreign in FOREIGN:
                    found.add(FOREIGN[foreign])
            self.needs_of[path] = frozenset(found)
        return self.needs_of[path]

    @staticmethod
    def floor(name):
        paths = sorted(str(p.relative_to(TOP)) for p in (TOP / name).rglob("*.c"))
        return [p for p in paths if p not in NOT_HERE and not p.endswith("/main.c")]


def why_of(text):
    """Of a compiler's or linker's words, those that say what is wrong."""
    lines = [line for line in text.splitlines() if line.strip()]
    return " / ".join(([line for line in lines if ERROR.search(line)] or lines)[:3])[:600]


class Build:
    def __init__(self, toolkit, out, report, log, arch, seconds):
        """Ends after so many seconds, with what is built then."""
        self.kit, self.out, self.report, self.arch = toolkit, out, report, arch
        self.deadline = time.monotonic() + seconds
        self.log, self.lock = log, threading.Lock()
        self.sources, self.objects, self.failed = Sources(), {}, {}
        self.programs, self.seconds, self.stopped = {}, 0.0, False
        self.compiler = shlex.split(os.environ.get("CC", "cc"))
        headers = sorted(p for part in ("common", "rendezvous", "worker", "kernels", "trainer", "launcher", "tests", "bench")
                         for p in (TOP / part).rglob("*.[hc]*") if p.suffix in (".h", ".cuh"))  # fmt: skip
        self.headers = hashlib.sha256(b"".join(p.read_bytes() for p in headers)).hexdigest()

    def have(self):
        """Names of packages that are here."""
        found = {name for name, at in self.kit.packages.items() if at}
        kit = self.kit
        found |= {"nvcc"} if kit.nvcc else set()
        found |= {"cuda"} if kit.header("cuda_runtime_api.h") else set()
        found |= {"cublaslt"} if kit.cublaslt and kit.header("cublasLt.h") else set()
        found |= {"nccl"} if kit.nccl and kit.cudart and kit.header("nccl.h") else set()
        return found

    def includes(self, source):
        """Of what this source needs: the others' flags do not change with it."""
        headers = {"cuda": "cuda_runtime_api.h", "cublaslt": "cublasLt.h", "nccl": "nccl.h"}
        needs, packages = self.sources.needs(source), self.kit.packages
        wanted = [self.kit.header(header) for name, header in headers.items() if name in needs]
        wanted += [packages[name][0] for name in sorted(packages) if name in needs and packages[name]]
        return [arg for folder in dict.fromkeys(wanted) if folder and str(folder) != "/usr/include"
                for arg in ("-isystem", str(folder))]  # fmt: skip

    def c_flags(self, source):
        loops = source in ("worker/shm/sum.c",) or source.startswith("kernels/cpu/cpu_")
        return [
            *self.compiler, "-std=c11", "-O3" if loops else "-O2", "-g1", "-fPIC", "-fno-strict-aliasing",
            *(["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"] if loops else []),
            "-fvisibility=hidden", f"-ffile-prefix-map={TOP}/=", "-I", str(TOP), *self.includes(source), "-D_GNU_SOURCE",
            '-DCT_VERSION="gpu-check"', f'-DCT_PLUGIN_DIR="{self.out}"', '-DCT_LIBEXEC_DIR=""',
            "-DCT_ISA=generic", "-DCT_ISA_X86=0",
        ]  # fmt: skip

    def cu_flags(self):
        return [str(self.kit.nvcc), "-std=c++20", "-O3", "-lineinfo", f"-arch=sm_{self.arch}", "-I", str(TOP),
                '-DCT_VERSION="gpu-check"', "-Xcompiler", "-fPIC,-fvisibility=hidden"]  # fmt: skip

    def run(self, title, argv):
        """(worked, what it said); the log has it all."""
        left = self.deadline - time.monotonic()
        if left <= 0 or self.stopped:
            return False, "no time was left for it"
        done = process.run(argv, left, cwd=self.out)
        if done.timed_out:
            return False, "no time was left to finish it"
        said = "\n".join(done.lines)
        if done.code != 0 or said.strip():
            with self.lock:
                self.log.write(f"### {title}: exit code {done.code}\n{shlex.join(map(str, argv))}\n{said}\n\n")
        return done.code == 0, said

    def compile(self, source):
        """The object of a source, or None."""
        target = self.out / "objects" / f"{source}.o"
        stamp = target.with_suffix(".stamp")
        flags = self.cu_flags() if source.endswith(".cu") else self.c_flags(source)
        argv = [*flags, "-c", str(TOP / source), "-o", str(target)]
        seen = hashlib.sha256("\0".join([self.headers, *argv]).encode() + (TOP / source).read_bytes()).hexdigest()
        if target.is_file() and stamp.is_file() and stamp.read_text() == seen:
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
        except OSError as why:
            with self.lock:
                self.failed[source] = str(why)
            return None
        worked, said = self.run(source, argv)
        if not worked:
            with self.lock:
                self.failed[source] = why_of(said)
            return None
        with contextlib.suppress(OSError):  # without it, the next build compiles it again
            stamp.write_text(seen)
        return target

    def compile_all(self, sources):
        # The longest first: those of nvcc.
        order = sorted(set(sources), key=lambda s: (not s.endswith(".cu"), s))
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            try:
                self.objects = dict(zip(order, pool.map(self.compile, order)))
            except BaseException:  # a signal asks for the end: nothing is compiled any more
                self.stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                process.kill_all()
                raise

    def archive(self, name, sources):
        target = self.out / name
        objects = [str(self.objects[s]) for s in sources if self.objects.get(s)]
        target.unlink(missing_ok=True)
        worked, _ = self.run(name, ["ar", "rcsD", str(target), *objects])
        return target if worked else None

    def link(self, name, sources, libraries, extra=()):
        """Makes a program or plug-in of objects and says how that went."""
        bad = [s for s in sources if not self.objects.get(s)]
        self.remove(name)
        if bad:
            self.programs[name] = f"failed: {bad[0]}: {self.failed.get(bad[0], 'not compiled')}"
            return
        shared = ["-shared"] if name.endswith(".so") else []
        folders = dict.fromkeys(str(lib.parent) for lib in libraries if ".so" in lib.name)
        rpath = [word for folder in folders for word in ("-Xlinker", "-rpath", "-Xlinker", folder)]
        argv = [*self.compiler, *shared, "-o", str(self.out / name), *(str(self.objects[s]) for s in sources),
                *map(str, libraries), *rpath, *extra, "-lpthread", "-ldl", "-lm", "-lrt"]  # fmt: skip
        worked, said = self.run(name, argv)
        self.programs[name] = "built" if worked else f"failed: {why_of(said)}"

    def remove(self, name):
        """One of an earlier build must not pass for this one's."""
        (self.out / name).unlink(missing_ok=True)

    def everything(self):
        """Builds all there is; gives what became of each program."""
        started = time.monotonic()
        have, floor = self.have(), self.sources.floor
        all_of = {
            part: [s for s in floor(part) if self.sources.needs(s) <= have]
            for part in ("common", "kernels", "worker", "trainer", "rendezvous", "launcher")
        }
        cuda = [s for s in all_of["kernels"] if s.startswith("kernels/cuda/")]
        cuda += sorted(str(p.relative_to(TOP)) for p in (TOP / "kernels/cuda").glob("*.cu")) if self.kit.nvcc else []
        nccl = [s for s in all_of["worker"] if "nccl" in self.sources.needs(s)]
        client = ["rendezvous/client/client.c", "rendezvous/wire/proto.c", "rendezvous/wire/sock.c"]
        plain = [s for part in ("common", "kernels", "worker", "trainer") for s in all_of[part]
                 if s not in cuda and s not in nccl and not s.endswith("_uv.c")] + client  # fmt: skip
        service = [s for part in ("rendezvous", "launcher") for s in all_of[part] if s not in client]
        table = self.table(cuda, nccl)
        sources = {s for row in table.values() for s in row["sources"] if row["needs"] <= have}
        with_service = table["ctrun"]["needs"] <= have
        self.compile_all([*plain, *(service if with_service else []), *sources])
        self.libct = self.archive("libct.a", plain)
        self.libctrun = self.archive("libctrun.a", service) if with_service else None
        for name, row in table.items():
            missing = sorted(row["needs"] - have)
            if missing:
                self.remove(name)
                self.programs[name] = f"left out: no {', '.join(missing)} here"
                continue
            self.link(name, row["sources"], [lib for lib in row["libraries"]() if lib], row.get("extra", ()))
        self.seconds = time.monotonic() - started
        self.report.set(build={
            "seconds": round(self.seconds, 1), "programs": self.programs, "failed": self.failed,
            "objects": len(self.objects), "arch": self.arch, "processors": len(os.sched_getaffinity(0)),
        })  # fmt: skip
        return self.programs

    def table(self, cuda, nccl):
        """Of each program: its own objects, the packages it needs, the libraries it is linked with."""
        kit, packages = self.kit, self.kit.packages
        tests = sorted(str(p.relative_to(TOP)) for p in (TOP / "tests/gpu").glob("*.c"))

        def package(*names):
            return [packages[name][1] for name in names if packages[name]]

        def gpu():
            return [self.libct, kit.cublaslt, kit.cudart_static or kit.cudart]

        return {
            "ctrun-cuda.so": {"sources": cuda, "needs": {"nvcc", "cuda", "cublaslt"}, "libraries": gpu, "extra": ["-lstdc++"]},
            "ctworker-nccl.so": {"sources": nccl, "needs": {"cuda", "nccl"},
                                 "libraries": lambda: [self.libct, kit.nccl, kit.cudart]},
            "test_cuda": {"sources": tests, "needs": set(), "libraries": lambda: [self.libct]},
            "gpu-world-sizes": {"sources": ["tests/gpu_world_sizes/gpu_world_sizes.c"], "needs": set(), "libraries": lambda: [self.libct]},
            "bench-gpu": {"sources": ["bench/programs/gpu.c"], "needs": set(), "libraries": lambda: [self.libct]},
            "bench-gpu-gemm": {"sources": ["bench/programs/gpu_gemm.c", *cuda], "needs": {"nvcc", "cuda", "cublaslt"},
                               "libraries": gpu, "extra": ["-lstdc++"]},
            "bench-gpu-ceiling": {"sources": ["bench/programs/gpu_ceiling.c"], "needs": {"cuda", "cublaslt"},
                                  "libraries": gpu},
            "bench-gpu-nccl": {"sources": ["bench/programs/gpu_nccl.c"], "needs": {"cuda", "nccl"},
                               "libraries": lambda: [kit.nccl, kit.cudart]},
            "train": {"sources": ["trainer/main.c"], "needs": {"cjson", "zlib"},
                      "libraries": lambda: [self.libct, *package("cjson", "zlib")]},
            "ctrun": {"sources": ["launcher/main.c"], "needs": {"cjson", "zlib", "uv", "sodium"},
                      "libraries": lambda: [self.libctrun, self.libct, *package("uv", "cjson", "sodium", "zlib")]},
        }  # fmt: skip
