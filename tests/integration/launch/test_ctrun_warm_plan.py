# SPDX-License-Identifier: Apache-2.0
"""Warm starts: the part in Python alone. What it takes of a program, and what it answers at the hand-over."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
import zipfile

import testlib
from testlib.warm_case import LIMIT, PART, PYTHON


class Answers:
    """What one spare has answered, and what the program has printed and ended with."""

    def __init__(self):
        self.ready = self.set = self.out = ""
        self.code = None


def speak(
    source, folder, program="pass", path=None, rank="2", plan="i spared", go=("module", "nothing"), then=None, env=None,
    command=None,
):  # fmt: skip
    """Plays ctrun for a spare that imports a module with this source, was told that it has rank 1, and is to be a
    worker of another rank, which runs a file, or `program` as a module. `path` is the PYTHONPATH of the user, `env` what
    else is in the environment; `then` is called when the spare is ready, and `command` is what the spare runs instead."""
    (folder / "spared.py").write_text(source)
    (folder / "nothing.py").write_text(program)
    path = str(folder) if path is None else path
    answers = Answers()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, tempfile.TemporaryFile() as before, tempfile.TemporaryFile() as after:
        for block, told in ((before, "1"), (after, rank)):
            block.write(f"PYTHONPATH={path}\0RANK={told}\0".encode())
            block.seek(0)
        with tempfile.TemporaryFile() as stand_in, tempfile.TemporaryFile("w+") as out:
            start = {"PYTHONPATH": f"{PART}:{path}" if path else str(PART), "RANK": "1",
                     "CTRUN_WARM": f"1:{theirs.fileno()}:spare", **(env or {})}  # fmt: skip
            spare = subprocess.Popen(
                [PYTHON, "-u", *(command or (["-m", go[1]] if go[0] == "module" else [go[1]]))],
                env=start, stdin=subprocess.DEVNULL, stdout=stand_in, stderr=out,
                pass_fds=[theirs.fileno()], cwd=folder, start_new_session=True,
            )  # fmt: skip
            theirs.close()
            ours.settimeout(LIMIT)
            try:
                socket.send_fds(ours, [b"import\0" + os.fsencode(plan)], [before.fileno()])
                answers.ready = ours.recv(65536).decode()
                if answers.ready.startswith("ready"):
                    if then is not None:
                        then()
                    socket.send_fds(ours, [os.fsencode("\0".join(("go", *go)))], [after.fileno()])
                    answers.set = os.fsdecode(ours.recv(65536))
                if answers.set == "set":
                    socket.send_fds(ours, [b"start"], [stand_in.fileno(), out.fileno(), out.fileno()])
                ours.close()
                answers.code = spare.wait(LIMIT)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(spare.pid, signal.SIGKILL)
                spare.wait(LIMIT)
            out.seek(0)
            answers.out = out.read()
    return answers


class Environment(testlib.Case):
    """What the part in Python answers when the worker is to have another rank than the spare was told."""

    def answer(self, source):
        return speak(source, self.tmp).set

    def test_a_variable_that_an_import_has_used_must_stay(self):
        used = ("os.environ.get('RANK')", "os.environb.get(b'RANK')", "os.getenvb(b'RANK')", "'RANK' in os.environ",
                "dict(os.environ)", "os.environ.pop('RANK')", "os.putenv('OTHER', '') or os.environ.setdefault('RANK', '')")
        for use in used:
            with self.subTest(use):
                self.assertRegex(self.answer(f"import os\n{use}\n"), "^no\0.*has used RANK, which is another one now")

    def test_one_that_none_has_used_may_change(self):
        for use in ("os.environ.get('OTHER')", "os.environb.get(b'OTHER')"):
            with self.subTest(use):
                self.assertEqual(self.answer(f"import os\n{use}\n"), "set")


class HandOver(testlib.Case):
    """What the part in Python does with imports that would make the worker differ from one that is started cold."""

    def assert_refuses(self, source, reason, **how):
        answers = speak(source, self.tmp, **how)
        self.assertRegex(answers.set or answers.ready, "^no\0.*" + reason, answers.out)
        self.assertNotEqual(answers.code, 0)

    def test_a_spare_becomes_a_worker(self):
        answers = speak("X = 5\n", self.tmp, "import os, spared; print(os.environ['RANK'], spared.X); raise SystemExit(3)")
        self.assertEqual((answers.set, answers.out, answers.code), ("set", "2 5\n", 3))

    def test_an_interpreter_for_another_program_does_not_become_the_worker(self):
        """As one that a wrapper runs before that of the program."""
        (self.tmp / "other.py").touch()
        for go in (("module", "nothing"), ("file", "nothing.py")):
            for command in (["-c", "pass"], ["other.py", "nothing.py"], ["-m", "other"]):
                self.assert_refuses("", "the command runs Python for another program first", go=go, command=command)

    def test_a_spare_that_may_have_no_more_descriptors_refuses(self):
        """The kernel would leave out some of the three, and a spare that then ended would be a worker with the exit
        code 0 that has done nothing."""
        fill = ("import os, resource\nkeep = []\nresource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))\n"
                "try:\n  while True: keep.append(os.open('/dev/null', 0))\nexcept OSError: pass\n"
                "for fd in keep[:{free}]: os.close(fd)\n")  # fmt: skip
        self.assert_refuses(fill.format(free=2), "it cannot take over its streams: Too many open files")
        self.assert_refuses(fill.format(free=0), "Too many open files")

    def test_an_import_that_replaces_a_stream(self):
        for source in ("os.dup2(os.open('log', os.O_CREAT | os.O_WRONLY), 2)", "os.close(0)", "os.dup2(2, 1)"):
            with self.subTest(source):
                self.assert_refuses(f"import os\n{source}\n", "has closed or replaced descriptor [012]")

    def test_an_import_that_leaves_a_process_in_the_background(self):
        self.assert_refuses("import os\nos.system('sleep 100 &')\n", "has started a process")

    def test_a_module_that_is_loaded_at_its_first_use_stays_unloaded(self):
        (self.tmp / "later.py").write_text("print('loaded')\nX = 7\n")
        source = ("import sys, importlib.util as util\nspec = util.find_spec('later')\n"
                  "spec.loader = util.LazyLoader(spec.loader)\nlater = sys.modules['later'] = util.module_from_spec(spec)\n"
                  "spec.loader.exec_module(later)\n")  # fmt: skip
        answers = speak(source, self.tmp, "print('begun'); import later; print(later.X)")
        self.assertEqual((answers.set, answers.out), ("set", "begun\nloaded\n7\n"))

    def test_what_is_in_sys_modules_need_not_be_a_module(self):
        source = ("import sys\nclass Odd:\n  def __getattr__(self, name): raise RuntimeError(name)\n"
                  "sys.modules['odd'], sys.modules['none'], sys.modules['text'] = Odd(), None, 'text'\n")  # fmt: skip
        self.assertEqual(speak(source, self.tmp).set, "set")

    def test_a_path_of_modules_that_is_set_and_empty_stays_so(self):
        answers = speak("", self.tmp, "import os; print(repr(os.environ['PYTHONPATH']), len(os.environ))", path="", plan="")
        self.assertEqual(answers.set, "set")
        self.assertRegex(answers.out, r"^'' [23]\n$")  # Python may have set LC_CTYPE

    def test_what_an_import_has_not_found_and_the_program_has(self):
        program = self.tmp / "job"
        program.mkdir()
        source = "import importlib.util\ntry:\n  import plugin_of_mine\nexcept ImportError: pass\n"
        go = ("file", str(program / "program.py"))
        self.assertEqual(speak(source, self.tmp, go=go).set, "set")
        (program / "sitecustomize.py").write_text("")  # the interpreter does not look for it there
        self.assertEqual(speak(source, self.tmp, go=go).set, "set")
        (program / "plugin_of_mine").mkdir()
        self.assert_refuses(source, "plugin_of_mine in .*/job would be found, which an import has missed", go=go)
        source = "import importlib.util\nimportlib.util.find_spec('plugin_of_mine')\n"
        self.assert_refuses(source, "plugin_of_mine in .*/job would be found", go=go)

    def test_what_the_program_did_not_find_and_has_now(self):
        """Settings of this machine, say, which may change the environment."""
        go = ("file", str(self.tmp / "program.py"))
        how = {"plan": "m local_settings\ni csv", "go": go}
        self.assertEqual(speak("", self.tmp, **how).set, "set")
        self.assert_refuses("", "local_settings in .* would be found", then=(self.tmp / "local_settings.py").touch, **how)

    def test_a_library_that_was_replaced(self):
        """A package of libraries alone, such as NCCL's, can be upgraded without any module."""
        ctypes.CDLL("libm.so.6")
        maps = pathlib.Path("/proc/self/maps").read_text().split("\n")
        library, new = self.tmp / "libspared.so", self.tmp / "new"
        shutil.copy(next(line.split()[-1] for line in maps if "/libm" in line), library)
        shutil.copy(library, new)
        source = f"import ctypes\nkeep = ctypes.CDLL({str(library)!r})\n"
        self.assertEqual(speak(source, self.tmp).set, "set")
        self.assert_refuses(source, "libspared.so has changed", then=lambda: new.rename(library))

    def test_an_installed_module_that_another_one_hides_now(self):
        """As `pip install --user` puts a new version in front of that of the system."""
        users, systems = self.tmp / "users", self.tmp / "system"
        systems.mkdir()
        (systems / "installed.py").write_text("X = 1\n")
        how = {"path": f"{self.tmp}:{users}:{systems}", "then": lambda: users.mkdir(exist_ok=True)}
        source = "import importlib.util, installed\ntry:\n  import plugin\nexcept ImportError: pass\n"
        self.assertEqual(speak(source, self.tmp, **how).set, "set")
        how["then"] = lambda: (users / "installed.txt").touch()
        self.assertEqual(speak(source, self.tmp, **how).set, "set")
        how["then"] = lambda: (users / "installed").mkdir()  # a folder hides no module
        self.assertEqual(speak(source, self.tmp, **how).set, "set")
        how["then"] = lambda: (users / "installed.py").touch()
        self.assert_refuses(source, "installed in .*/users would be imported now", **how)
        (users / "installed.py").unlink()
        how["then"] = lambda: (systems / "plugin.py").touch()
        self.assert_refuses(source, "plugin in .*/system would be imported now", **how)

    def test_an_archive_of_modules_that_was_replaced(self):
        archive, new = self.tmp / "lib.zip", self.tmp / "new.zip"
        for path, text in ((archive, "X = 1\n"), (new, "X = 22\n")):
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("deep/__init__.py", "")
                file.writestr("deep/zipped.py", text)
        how = {"path": f"{self.tmp}:{archive}"}
        self.assertEqual(speak("import deep.zipped\n", self.tmp, **how).set, "set")
        self.assert_refuses("import deep.zipped\n", "lib.zip has changed", then=lambda: new.rename(archive), **how)

    def test_what_names_other_folders_has_changed(self):
        """As `pip install -e` of another version does it."""
        env = {"PYTHONUSERBASE": str(self.tmp / "base")}
        asked = subprocess.run([PYTHON, "-c", "import site; print(site.ENABLE_USER_SITE, site.USER_SITE)"], text=True,
                               env=env, capture_output=True, check=True).stdout  # fmt: skip
        enabled, _, folder = asked.strip().partition(" ")
        if enabled != "True":
            self.skipTest("this Python has no packages of the user")
        folder = pathlib.Path(folder)
        self.assert_refuses("", "site-packages has changed", env=env, then=lambda: folder.mkdir(parents=True))
        self.assertEqual(speak("", self.tmp, env=env, then=(folder / "module.py").touch).set, "set")
        link = folder / "editable.pth"
        self.assert_refuses("", "editable.pth has changed", env=env, then=lambda: link.write_text("/v1\n"))
        self.assert_refuses("", "editable.pth has changed", env=env, then=lambda: link.write_text("/v2\n"))
        self.assertEqual(speak("", self.tmp, env=env).set, "set")
        self.assert_refuses("", "editable.pth has changed", env=env, then=link.unlink)

    def test_a_folder_of_modules_that_is_there_only_now(self):
        later = self.tmp / "later"

        def make():
            later.mkdir()
            (later / "new.py").write_text("X = 8\n")

        answers = speak("", self.tmp, "import new; print(new.X)", path=f"{later}:{self.tmp}", then=make)
        self.assertEqual((answers.set, answers.out), ("set", "8\n"))

    def test_what_depends_on_an_import_that_fails(self):
        plan = "i spared\ni !no_such_module\ni csv"
        answers = speak("", self.tmp, "import sys; print('csv' in sys.modules)", plan=plan)
        self.assertEqual((answers.set, answers.out), ("set", "False\n"))
        self.assertEqual(speak("", self.tmp, "import sys; print('csv' in sys.modules)", plan=plan.replace("!", "?")).out, "True\n")


def python_itself(name):
    """The interpreter of this name, not a script that looks for it; None if there is none or it does not work."""
    try:
        ran = subprocess.run([name, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return os.path.realpath(ran.stdout.strip()) if ran.returncode == 0 else None


class Plan(unittest.TestCase):
    """What the part in Python takes of a program; under each Python that is installed."""

    PYTHONS = sorted({python_itself(f"python3.{minor}") for minor in range(8, 16)} - {None} | {python_itself(PYTHON)})

    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ctrun-test-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def ask(self, python, program, kind="file", names="", env=None):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {**os.environ, "PYTHONPATH": str(PART), "CTRUN_WARM": f"1:{theirs.fileno()}:plan",
               "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}  # fmt: skip
        with ours, theirs:
            ours.settimeout(LIMIT)
            ours.send(os.fsencode("\0".join(["plan", kind, str(program), names])))
            done = subprocess.run([python, "-u", "-c", "print('went on')"], env=env, pass_fds=[theirs.fileno()],
                                  capture_output=True, text=True, cwd=self.tmp, timeout=LIMIT, check=False)  # fmt: skip
            answer = os.fsdecode(ours.recv(65536))
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        word, _, text = answer.partition("\0")
        return word, text

    def imports(self, text, kind="file", program=None, **files):
        """The imports of a program, which must be the same under each Python."""
        answers = {}
        (self.tmp / "program.py").write_text(text)
        for name, content in files.items():
            path = self.tmp / (name.replace("__in__", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        for python in self.PYTHONS:
            word, plan = self.ask(python, program or self.tmp / "program.py", kind)
            answers[python] = (word, [line[2:] for line in plan.split("\n") if line.startswith("i ")])
        self.assertTrue(answers)
        self.assertEqual(len({str(answer) for answer in answers.values()}), 1, answers)
        word, names = answers.popitem()[1]
        self.assertEqual(word, "plan")
        return names

    def test_the_imports_at_the_beginning(self):
        self.assertEqual(
            self.imports("'doc'\nfrom __future__ import annotations\nimport os, json.decoder as d\n"
                         "from xml import dom\nfrom email import *\nX = 1\nimport csv\n"),
            ["os", "json.decoder", "xml:dom", "email", "csv"],
        )  # fmt: skip

    def test_what_may_fail_and_what_ends_the_list(self):
        begin = "import os, sys\n"
        for end in ("os.environ['A'] = '1'", "sys.path.insert(0, 'x')", "print()", "for x in []: pass", "X = os.environ",
                    "with open('/dev/null'): pass", "del X", "if True: print()", "sys.x = 1", "assert print",
                    "X = sys.modules", "if __name__ == '__main__': print()"):  # fmt: skip
            self.assertEqual(self.imports(begin + end + "\nimport csv\n"), ["os", "sys"], end)
        for middle in ("def f(): print()", "class A: pass", "X = f(1)", "if 1: X = 2", "X: int = 3", "pass",
                       "X = os.path.join('a')", "if sys.version_info > (3, 8): import csv"):  # fmt: skip
            self.assertEqual(self.imports(begin + middle + "\nimport json\n"), ["os", "sys", "json"], middle)
        self.assertEqual(self.imports("try:\n import csv\nexcept ImportError:\n import json\nimport xml\n"), ["?csv", "xml"])

    def test_what_comes_with_an_import_that_may_fail(self):
        # The rest is imported only if this one has not failed.
        self.assertEqual(
            self.imports("import sys\ntry:\n import csv\nexcept ImportError:\n sys.path.insert(0, 'x')\nimport xml\n"),
            ["sys", "!csv", "xml"],
        )
        for part in ("except ImportError:\n pass\nelse:\n print()", "finally:\n print()"):
            self.assertEqual(self.imports(f"try:\n import csv\n{part}\nimport xml\n"), ["?csv"], part)
        # It is so, too, for what a module of the job's own imports.
        self.assertEqual(
            self.imports("try:\n import helper\nexcept ImportError:\n X = 1\nimport xml\n", helper="import csv\n"),
            ["?csv", "xml"],
        )

    def test_an_import_that_fails_when_the_plan_is_made(self):
        program = self.tmp / "program.py"
        program.write_text("try:\n import local_settings.x\nexcept ImportError: pass\nimport csv\n")
        word, plan = self.ask(PYTHON, program)
        self.assertEqual((word, plan.split("\n")[:2]), ("plan", ["i csv", "m local_settings"]))
        self.assertEqual(
            self.imports("import os\ntry:\n import missing\nexcept ImportError:\n os.environ['A'] = '1'\nimport csv\n"), ["os"]
        )

    def test_a_part_of_the_jobs_own_package_that_is_missing(self):
        program = "try:\n from lib.local import x\nexcept ImportError:\n {}\nimport csv\n"
        self.assertEqual(self.imports(program.format("X = 1"), lib__in____init__=""), ["csv"])
        self.assertEqual(self.imports(program.format("print()"), lib__in____init__=""), [])
        # Once a spare that had been made without it became a worker.
        (self.tmp / "program.py").write_text(program.format("X = 1"))
        word, plan = self.ask(PYTHON, self.tmp / "program.py")
        self.assertEqual(word, "plan")
        go = ("file", str(self.tmp / "program.py"))
        self.assertEqual(speak("", self.tmp, plan=plan, go=go).set, "set")
        answers = speak("", self.tmp, plan=plan, go=go, then=(self.tmp / "lib" / "local.py").touch)
        self.assertRegex(answers.set, "^no\0.*/lib/local.py has changed")

    def test_the_jobs_own_modules_that_cannot_be_read(self):
        (self.tmp / "compiled.abi3.so").touch()
        (self.tmp / "wave").mkdir()  # any module comes before a folder without __init__.py
        change = {"folder__in__env": "import os\nos.environ['A'] = '1'\n", "lib__in____init__": ""}
        (self.tmp / "lib").mkdir()
        (self.tmp / "lib" / "compiled.abi3.so").touch()
        for own in ("folder.env", "compiled", "lib.compiled"):
            self.assertEqual(self.imports(f"import wave\nimport {own}\nimport csv\n", **change), ["wave"], own)

    def test_functions_that_change_the_environment_when_they_are_called(self):
        change = "import os\ndef f(): os.environ['A'] = '1'\n"
        cases = (
            ("X = f()", ["os"]), ("X: int = f()", ["os"]), ("if f(): pass", ["os"]), ("@f\nclass B: pass", ["os"]),
            ("def g(x=f()): pass", ["os"]), ("def g(): return f()\nX = g()", ["os"]),
            ("class B:\n def __init__(self): f()\nX = B()", ["os"]), ("class B:\n X = f()", ["os"]),
            ("def g(): return f()", ["os", "json"]), ("class B:\n def g(self): f()", ["os", "json"]),
            ("class B:\n 'doc'\n x: int = 3\n def eval(self): pass\nX = B().eval()", ["os", "json"]),
        )  # fmt: skip
        for text, names in cases:
            with self.subTest(text):
                self.assertEqual(self.imports(f"{change}{text}\nimport json\n"), names)
        for text in ("import helper\nX = helper.f()", "from helper import f as g\nX = g()",
                     "def g(): return f()\nfrom helper import f\nX = g()"):  # fmt: skip
            with self.subTest(text):
                self.assertEqual(self.imports(f"{text}\nimport json\n", helper=change), ["os"])

    def test_a_module_of_the_jobs_own_that_may_be_imported(self):
        change = "import os\nos.environ['B'] = '1'\n"
        for text in ("if os.environ.get('A'): import helper", "if 1:\n if 2: from helper import x", "if 1: pass\nelse: import helper",
                     "class A: import helper", "if 1: from . import x", "if 1: import folder.x"):
            self.assertEqual(self.imports(f"import os\n{text}\nimport json\n", helper=change, folder__in__x=change), ["os"], text)
        for text in ("if 1: import csv", "if os.name == 'nt': import no_such_module", "if TYPE_CHECKING: import helper",
                     "if typing.TYPE_CHECKING:\n from helper import x"):
            self.assertEqual(self.imports(f"import os\n{text}\nimport json\n", helper=change), ["os", "json"], text)

    def test_what_the_jobs_own_modules_do_when_they_are_imported(self):
        for helper, names in (("if __name__ == '__main__': print()\nelse: import wave\nimport bz2\n", ["wave", "bz2", "json"]),
                              ("if '__main__' == __name__ and f(): print()\nimport bz2\n", ["bz2", "json"]),
                              ("if __name__ != '__main__': print()\nimport bz2\n", []),
                              ("if __name__ == '__main__': print()\nelse: print()\nimport bz2\n", [])):  # fmt: skip
            self.assertEqual(self.imports("import helper\nimport json\n", helper=helper), names, helper)

    def test_to_read_the_environment_changes_nothing(self):
        for text in ("X = os.environ['A']", "X = int(os.environ.get('A', 0))", "X = 'A' in os.environ", "X = sys.path[0]",
                     "def f(): return os.environ['A']\nX = f()", "if os.environ.get('A'): X = 1"):  # fmt: skip
            self.assertEqual(self.imports(f"import os, sys\n{text}\nimport json\n"), ["os", "sys", "json"], text)
        for text in ("X = os.environ.pop('A')", "X = os.environ.setdefault('A', '')", "X = f(os.environ)", "X = load_dotenv()",
                     "X = sys.path", "def f(): del os.environ['A']\nX = f()"):  # fmt: skip
            self.assertEqual(self.imports(f"import os, sys\n{text}\nimport json\n"), ["os", "sys"], text)

    def test_paths_that_are_no_plain_text(self):
        for name in (b"a\nb \\ n.py", b"\\\n\\n\\\\n.py", b"\xff\xe9.py"):
            path = os.path.join(os.fsencode(self.tmp), name)
            with open(path, "wb") as file:
                file.write(b"import csv\n")
            word, plan = self.ask(PYTHON, os.fsdecode(path))
            self.assertEqual((word, plan.partition("\n")[0]), ("plan", "i csv"), name)
            # The spare finds the file that it names.
            answers = speak("", self.tmp, plan=plan, go=("file", os.fsdecode(path)))
            self.assertEqual(answers.set, "set")
            with open(path, "ab") as file:
                file.write(b"pass\n")
            self.assertRegex(speak("", self.tmp, plan=plan, go=("file", os.fsdecode(path))).set, "^no\0.* has changed$")

    def test_the_jobs_own_modules_are_read_and_not_run(self):
        self.assertEqual(
            self.imports("import helper\nfrom lib import part\nimport json\n",
                         helper="import csv\nif __name__ == '__main__':\n    exit(1)\nimport wave\n",
                         lib__in____init__="from .other import x\n", lib__in__part="import bz2\nfrom . import missing\n",
                         lib__in__other="import gzip\n"),
            ["csv", "wave", "gzip", "bz2", "json"],
        )  # fmt: skip
        self.assertEqual(self.imports("import helper\nimport json\n", helper="import csv\nprint('no')\n"), ["csv"])
        # A module beside the program hides the one of the standard library.
        self.assertEqual(self.imports("import csv\nimport json\n", csv="import wave\n"), ["wave", "json"])

    def test_a_module_as_the_program(self):
        self.assertEqual(
            self.imports("", "module", "pack.run", pack__in____init__="import csv\n", pack__in__run="import wave\n"),
            ["csv", "wave"],
        )

    def test_what_a_module_does_when_it_is_the_program(self):
        text = "import os\nif __name__ == '__main__': os.environ['A'] = '1'\nimport json\n"
        self.assertEqual(self.imports("", "module", "pack.run", pack__in____init__="", pack__in__run=text), ["os"])
        files = {"whole__in____init__": text, "whole__in____main__": text.replace("json", "csv")}
        self.assertEqual(self.imports("", "module", "whole", **files), ["os", "json"])

    def test_what_cannot_be_read(self):
        for text, reason in (("import (\n", "cannot be read"), ("\0", "cannot be read")):
            (self.tmp / "program.py").write_text(text)
            word, why = self.ask(PYTHON, self.tmp / "program.py")
            self.assertEqual(word, "no", text)
            self.assertIn(reason, why)
        self.assertEqual(self.ask(PYTHON, self.tmp / "nowhere.py")[0], "no")

    def test_a_lazy_import_stays_lazy(self):
        program = self.tmp / "program.py"
        program.write_text("import csv\nlazy import wave\nlazy from xml import dom\nimport json\n")
        for python in self.PYTHONS:
            if subprocess.run([python, "-c", "lazy import os"], capture_output=True, check=False).returncode == 0:
                word, plan = self.ask(python, program)
                self.assertEqual((word, [line for line in plan.split("\n") if line[0] == "i"]), ("plan", ["i csv", "i json"]))

    def test_names_replace_it(self):
        (self.tmp / "program.py").write_text("import csv\n")
        self.assertEqual(self.ask(PYTHON, self.tmp / "program.py", names="wave,xml.dom")[1], "i wave\ni xml.dom")

    def test_the_first_use_of_an_optimizer(self):
        packages = self.tmp / "site-packages"
        (packages / "torch").mkdir(parents=True)
        (packages / "torch" / "__init__.py").write_text("")
        for text, later in (("X = torch.optim.SGD\n", ["i ?torch._dynamo"]), ("X = torch.nn\n", [])):
            program = self.tmp / "program.py"
            program.write_text("import torch\n" + text)
            word, plan = self.ask(PYTHON, program, env={"PYTHONPATH": f"{PART}:{packages}"})
            self.assertEqual(word, "plan")
            self.assertEqual([line for line in plan.split("\n") if line[0] == "i"], ["i torch", *later])


if __name__ == "__main__":
    testlib.main()
