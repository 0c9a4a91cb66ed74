# SPDX-License-Identifier: Apache-2.0
"""Warm starts: a worker that was a spare is as one that was started cold."""

import json
import os
import pathlib
import re
import unittest

import testlib
from testlib import warm_case
from testlib.warm_case import LIMIT, PYTHON, WarmCase

# BEFORE is taken before any import of the program, and in a way that ends no plan.
GOLDEN = """
import sys
BEFORE = sys.modules.copy()
import os, time
import json
{wait}
{imports}
{see}
AFTER = sorted(sys.modules)
if __name__ == "__main__":
    first_generation()
    seen = see()
    seen["modules"] = [sorted(BEFORE), AFTER]
    with open({out!r} + os.environ["RANK"], "w") as file:
        json.dump(seen, file)
"""


class Same(WarmCase):
    def see(self, name, warm, *args, env=None, options=()):
        """What each rank of generation 1 sees of itself."""
        out = str(self.tmp / name)
        self.go.unlink(missing_ok=True)
        program = self.program(GOLDEN, "golden.py", out=out + ".", imports=warm_case.IMPORTS, see=warm_case.SEE)
        arguments = args or (program, "--option", "a b")
        result = self.restart(
            *arguments, spares=2 if warm else 0, warm=("--warm",) if warm else (), env=env, options=options
        )
        self.assertEqual(result.code, 0, result)
        if warm:
            self.assert_warm(result)
        texts = [pathlib.Path(f"{out}.{rank}").read_text() for rank in range(2)]
        return [warm_case.plain(json.loads(text), self.tmp) for text in texts]

    def assert_alike(self, cold, warm):
        for rank in range(2):
            before, after = cold[rank].pop("modules")
            # All imports of this program are in the plan, so they are what a warm worker has at its beginning.
            self.assertEqual(warm[rank].pop("modules"), [after, after])
            self.assertNotIn("ctypes", before)
        warm_case.assert_alike(self, cold, warm)

    def test_what_differs_is_in_the_documentation(self):
        rows, section = warm_case.documented_differences()
        self.assertEqual(rows, list(warm_case.DIFFERENCES))
        for word in warm_case.DIFFERENCES.values():
            self.assertIn(word, section)

    def test_a_worker_that_was_a_spare_sees_the_same(self):
        self.idle = True
        self.assert_alike(self.see("cold", False), self.see("warm", True))

    def test_the_same_with_a_module_and_the_users_own_python_settings(self):
        own = self.tmp / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import os\nkeep = os.open('/', os.O_RDONLY)\n")
        env = {"PYTHONPATH": f"{own}::/nowhere", "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "ignore"}
        args = ("--module", "golden", "x")
        self.assert_alike(self.see("cold", False, *args, env=env), self.see("warm", True, *args, env=env))

    def test_the_same_behind_a_wrapper_that_adds_to_the_path(self):
        wrapper = self.script(
            "python", f'#!/bin/sh\nPYTHONPATH=/first${{PYTHONPATH:+:$PYTHONPATH}} exec {PYTHON} "$@"\n'
        )
        os.chmod(wrapper, 0o755)
        for path in ({}, {"PYTHONPATH": "/users"}):
            env = {"PYTHON_EXEC": wrapper, **path}
            self.assert_alike(self.see("cold", False, env=env), self.see("warm", True, env=env))

    def test_the_same_behind_a_wrapper_that_waits(self):
        """The interpreter is a child of the process that ctrun has started, and was made at idle priority."""
        self.idle = True
        wrapper = self.script("python", f'#!/bin/sh\n{PYTHON} "$@"\nexit $?\n')
        os.chmod(wrapper, 0o755)
        env = {"PYTHON_EXEC": wrapper}
        self.assert_alike(self.see("cold", False, env=env), self.see("warm", True, env=env))

    def test_the_same_with_binding_and_hang_detection(self):
        options = ("--hang-timeout", "100") + (("--bind", "core") if (os.cpu_count() or 1) > 1 else ())
        cold = self.see("cold", False, options=options)
        self.assert_alike(cold, self.see("warm", True, options=options))
        self.assertTrue(cold[0]["faulthandler"])

    def test_what_the_program_imports_is_there_and_multiprocessing_works(self):
        program = self.program(
            "import os, time, sys\nimport sqlite3, multiprocessing\n{wait}"
            "def square(x): return x * x\n"
            "if __name__ == '__main__':\n"
            "  first_generation()\n"
            "  for start in ('spawn', 'forkserver', None):\n"
            "    with multiprocessing.get_context(start).Pool(2) as pool: print(start, pool.map(square, [1, 2, 3]))\n"
        )  # fmt: skip
        result = self.restart(program)
        self.assert_warm(result)
        for start in ("spawn", "forkserver", "None"):
            self.assertIn(f"{start} [1, 4, 9]", result.out)

    def ends(self, text, env=None):
        """How a warm worker ends that runs `text`; all others succeed."""
        program = self.program(
            "import os, sys, time, atexit\n{wait}first_generation()\n"
            "atexit.register(print, 'at exit')\n"
            f"if os.environ['RANK'] == '0':\n    {text}\n"
        )
        result = self.restart(program, env=env)
        self.assertIn("generation 1: 2 of 2 workers here were warm", result.err)
        return result

    def test_exit_codes_and_tracebacks(self):
        self.assertEqual(self.ends("sys.exit(41)").code, 41)
        self.go.unlink()
        result = self.ends("raise KeyError('seen')")
        self.assertEqual(result.code, 1)
        self.assertIn("KeyError: 'seen'", result.err)
        self.assertNotIn("sitecustomize", result.err)
        self.assertIn("at exit", result.out)
        self.go.unlink()
        result = self.ends("os._exit(42)")
        self.assertEqual(result.code, 42)
        self.go.unlink()
        self.assertEqual(self.ends("os.kill(os.getpid(), 11)").code, 128 + 11)

    def test_an_error_file_is_told(self):
        """It is in the folder of the generation in which the spare became a worker."""
        content = {"message": {"message": "ValueError: boom", "extraInfo": {
            "py_callstack": "Traceback: here", "timestamp": "1"}}}  # fmt: skip
        text = f"open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({json.dumps(content)!r}); sys.exit(1)"
        result = self.ends(text, env={"TMPDIR": self.tmp})
        self.assertEqual(result.code, 1, result)
        self.assertIn("    ValueError: boom\n", result.err)
        self.assertIn("    Traceback: here\n", result.err)
        kept = re.search(r"files of this run: (\S+)", result.err).group(1)
        self.assertEqual(json.loads(pathlib.Path(kept, "attempt_1", "0", "error.json").read_text()), content)

    @unittest.skipIf(os.path.exists("/usr/bin/py-spy"), "py-spy is installed, and tells the stack")
    def test_one_that_hangs_writes_its_stack_when_it_is_killed(self):
        """Python's faulthandler writes it to the stream that the spare has got at the hand-over. In generation 0 all
        compute until the spares are ready, so that they do not hang."""
        lines = (
            "import os, socket, time",
            "rank, here = os.environ['RANK'], os.path.dirname(os.path.abspath(__file__))",
            "while os.environ['CTRUN_GENERATION'] == '0':",
            "    if os.path.exists(here + '/go'): os._exit(3 if rank == '0' else 0)",
            "while time.process_time() < 0.7: pass",
            "open(here + '/lived-' + rank, 'w').close()",
            "while not all(os.path.exists(f'{here}/lived-{other}') for other in range(3)): time.sleep(0.01)",
            "if rank == '1':",
            "    time.sleep(1000)",
            "with socket.create_server(('127.0.0.1', 0)) as peer: peer.accept()",
        )
        program = self.script("program.py", "\n".join(lines) + "\n")
        options = ("--hang-timeout", "2", "--on-hang", "abort")
        result = self.restart(program, workers=3, options=options, env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(result.code, 122, result)
        self.assertIn("generation 1: 3 of 3 workers here were warm\n", result.err)
        number = lines.index("    time.sleep(1000)") + 1
        self.assertRegex(result.err, rf"rank 1 failed on \S+: process \d+ hung: .* at program.py:{number} in <module>")

    def test_one_worker_has_the_streams_of_ctrun(self):
        program = self.program(
            "import os, sys, time\n{wait}first_generation()\n"
            "print([stream.seekable() for stream in (sys.stdin, sys.stdout, sys.stderr)], sys.stdin.read())\n"
        )
        text = self.tmp / "text"
        text.write_text("input")
        for options, seekable in (((), True), (("--tee", "3"), False)):
            with open(text) as stdin:
                self.go.unlink(missing_ok=True)
                job = self.start_ctrun("-n", "1", "--max-restarts", "1", "--warm", *options, program, stdin=stdin,
                                       env={"LOGLEVEL": "info"})  # fmt: skip
                job.wait_for("the spare of local rank 0 is ready", LIMIT)
                self.go.touch()
                result = job.wait(LIMIT)
            self.assert_warm(result, 1, 1)
            self.assertIn(f"[True, {seekable}, False] input\n", result.out)


if __name__ == "__main__":
    testlib.main()
