# SPDX-License-Identifier: Apache-2.0
"""An outside program sees the installed library through pkg-config alone. The program is the one in
the man page, so the page's example is known to compile and to print what the page says."""

import os
import re
import shlex
import shutil
import subprocess
import unittest

import testlib

# Written from the page alone, as the program below in Python is.
CPLUSPLUS = r"""
#include <cstdio>
#include <ctworker.h>

int main()
{
    ct_err err = {};
    ctw_job *job = nullptr;
    ctw_comm *comm = nullptr;
    ctw_job_options options = {};
    ctw_comm_options how = {};
    options.timeout_ms = 20000;
    how.backend = CTW_BACKEND_HOST;
    how.order = CTW_ORDER_TREE;
    if (ctw_job_open(&options, &job, &err) != 0 || ctw_comm_open(job, &how, &comm, &err) != 0) {
        std::fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const ctw_env *env = ctw_job_env(job);
    float number = 1.0f + (float)env->rank, sum = 0;
    int rc = ctw_comm_all_reduce(comm, &number, &sum, 1, &err);
    std::printf("sum %g of %d\n", (double)sum, env->world_size);
    ctw_comm_free(comm);
    ctw_job_free(job);
    return rc == CT_EPEER ? 2 : rc != 0;
}
"""

PYTHON = """
import ctypes as c
import sys


class Err(c.Structure):
    _fields_ = [("code", c.c_int), ("sys", c.c_int), ("text", c.c_char * 1024)]


class Env(c.Structure):
    _fields_ = [(name, c.c_int) for name in (
        "rank", "world_size", "local_rank", "local_world_size", "node_rank", "node_count",
        "generation")] + [
        ("master_port", c.c_uint16), ("launched", c.c_bool), ("store_is_external", c.c_bool),
        ("master_addr", c.c_char * 256), ("run_id", c.c_char * 256),
        ("error_file", c.c_char * 4096), ("snapshot", c.c_char * 4096),
        ("device_index", c.c_int), ("device_own", c.c_bool), ("device_set", c.c_bool)]


class CommOptions(c.Structure):
    _fields_ = [("backend", c.c_int), ("timeout_ms", c.c_int64), ("device", c.c_int),
                ("stream", c.c_void_p), ("order", c.c_int), ("tree_sum", c.c_void_p),
                ("tree_sum_data", c.c_void_p)]


lib = c.CDLL(sys.argv[1])
lib.ctw_job_env.restype = c.POINTER(Env)
err = Err()


def call(name, *args):
    if getattr(lib, name)(*args, c.byref(err)) != 0:
        sys.exit(err.text.decode())


job, comm = c.c_void_p(), c.c_void_p()
call("ctw_job_open", None, c.byref(job))
env = lib.ctw_job_env(job).contents
assert env.launched and env.store_is_external and env.master_port > 0, env.master_port
assert env.local_world_size == env.world_size and not env.device_own
call("ctw_comm_open", job, c.byref(CommOptions(timeout_ms=20000, order=1)), c.byref(comm))
number, total = c.c_float(1 + env.rank), c.c_float()
call("ctw_comm_all_reduce", comm, c.byref(number), c.byref(total), c.c_size_t(1))
print("sum", total.value, "of", env.world_size)
lib.ctw_comm_free(comm)
lib.ctw_job_free(job)
"""

FUNCTION = re.compile(r"\b(ctw_\w+)\(")


def examples_of(page):
    """The last two literal displays of the page, as text: a program, and a function for it."""
    displays = re.findall(r"^\.Bd -literal$\n(.*?)^\.Ed$", page, re.M | re.S)[-2:]
    return [display.replace("\\en", "\\n") for display in displays]


class Install(testlib.Case):
    @classmethod
    def setUpClass(cls):
        for tool in ("pkg-config", "nm"):
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"{tool} is not installed")

    def setUp(self):
        super().setUp()
        self.root = self.install_build()
        (pc,) = self.root.rglob("ctworker.pc")
        self.env = dict(
            os.environ,
            PKG_CONFIG_PATH=str(pc.parent),
            PKG_CONFIG_SYSROOT_DIR=str(self.root),
            LD_LIBRARY_PATH=str(pc.parent.parent),
        )
        self.library = pc.parent.parent / "libctworker.so"

    def compile(self, source, *more, compiler=None):
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "ctworker"],
            env=self.env, check=True, capture_output=True, text=True,
        ).stdout.split()  # fmt: skip
        sanitize = os.environ["SANITIZE"]
        if sanitize != "none":
            flags.append(f"-fsanitize={sanitize}")
        output = self.tmp / "prog"
        compiler = compiler or shlex.split(os.environ["CC"])
        command = [*compiler, *more, source, "-x", "none", *flags, "-o", output]
        subprocess.run(command, env=self.env, check=True)
        return str(output)

    def test_program_of_the_man_page(self):
        page = (testlib.SOURCE_ROOT / "man" / "ctworker.3").read_text()
        program, function = examples_of(page)
        self.compile_and_run(page, self.script("prog.c", program))
        before, _, main = program.partition("int main(void)")
        main = main.replace("run(job, &err)", "run_all(job, &err)")
        self.compile_and_run(page, self.script("stays.c", f"{before}{function}\nint main(void){main}"))

    def compile_and_run(self, page, source):
        prog = self.compile(source, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
        path = {"LD_LIBRARY_PATH": self.env["LD_LIBRARY_PATH"]}
        alone = self.run_program(prog, env=path)
        self.assertEqual(alone.code, 0, alone)
        self.assertEqual(alone.out, "1 ranks, sum of their numbers 0\n")

        job = self.ctrun("--nproc-per-node", "4", prog, env=path)
        self.assertEqual(job.code, 0, job)
        said = "4 ranks, sum of their numbers 6"
        self.assertIn(said, job.out)
        self.assertIn(said, page)

    def declarations(self):
        """What the installed headers hold for a compiler, without those of the system."""
        (header,) = self.root.rglob("ctworker.h")
        text = subprocess.run(
            [*shlex.split(os.environ["CC"]), "-E", f"-I{header.parent}", header],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        ours, kept = False, []
        for line in text.splitlines():
            place = re.match(r'# \d+ "([^"]*)"', line)
            if place is None and ours:
                kept.append(line)
            elif place is not None:
                ours = place.group(1).startswith(str(header.parent))
        return re.sub(r"__attribute__\(\(.*?\)\)+", "", "\n".join(kept)).replace("_Bool", "bool")

    def test_headers_declare_what_the_library_exports(self):
        nm = subprocess.run(
            ["nm", "-D", "--defined-only", self.library],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        symbols = {line.split()[-1] for line in nm.splitlines()}
        declared = set(re.findall(r"\b(ct\w+) ?\(", self.declarations()))
        self.assertGreater(len(declared), 15)
        # A sanitizer adds symbols of its own.
        self.assertEqual({s for s in symbols if not s.startswith("__")}, declared)

    def test_man_page_shows_every_type(self):
        def plain(text):
            text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
            return re.sub(r",? }", " }", re.sub(r"\s+", " ", text))

        page = plain((testlib.SOURCE_ROOT / "man" / "ctworker.3").read_text())
        header = plain(self.declarations())
        types = re.findall(r"(?:struct|enum) ct\w+ \{.*?\};|typedef [^;]*;", header)
        self.assertGreater(len(types), 9)
        for declaration in types:
            self.assertIn(declaration, page)

    def test_a_program_in_cplusplus_uses_the_library(self):
        compiler = shutil.which("c++")
        if compiler is None:
            self.skipTest("no C++ compiler")
        flags = ("-x", "c++", "-Wall", "-Wextra", "-Werror", "-pedantic")
        prog = self.compile(self.script("use.cc", CPLUSPLUS), *flags, compiler=[compiler])
        job = self.ctrun("-n", "2", prog, env={"LD_LIBRARY_PATH": self.env["LD_LIBRARY_PATH"]})
        self.assertEqual(job.code, 0, job)
        self.assertEqual(job.out.count("sum 3 of 2"), 2, job)

    def test_a_program_in_python_uses_the_library(self):
        if os.environ["SANITIZE"] != "none":
            self.skipTest("Python cannot load a library with a sanitizer")
        job = self.ctrun("-n", "2", self.script("use.py", PYTHON), self.library)
        self.assertEqual(job.code, 0, job)
        self.assertEqual(job.out.count("sum 3.0 of 2"), 2, job)

    def test_man_page_lists_every_function(self):
        (header,) = self.root.rglob("ctworker.h")
        page = (testlib.SOURCE_ROOT / "man" / "ctworker.3").read_text()
        for name in set(FUNCTION.findall(header.read_text())):
            self.assertIn(f".Fn {name} ", page)


if __name__ == "__main__":
    testlib.main()
