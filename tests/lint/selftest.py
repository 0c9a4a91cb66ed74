# SPDX-License-Identifier: Apache-2.0
"""Each lint rule finds what it is there to find, and nothing in clean text."""

import pathlib
import unittest

import calls
import functions
import layers
import manpages
import names
import pages
import readme
import registered
import shape

GOOD_HEAD = "/* SPDX-License-Identifier: Apache-2.0\n *\n * Adds numbers.\n */\n"


def messages(check, path, text):
    return [m for _, m in check(pathlib.PurePosixPath(path), text)]


ROOMS = {
    "common": [],
    "rendezvous": ["wire", "store", "server"],
    "worker": ["job", "comm", "nccl"],
    "kernels": ["device", "cpu"],
    "trainer": ["model"],
    "launcher": ["util", "agent"],
}


class Layers(unittest.TestCase):
    check = staticmethod(layers.Layers(ROOMS).check)

    def refused(self, path, include):
        self.assertEqual(len(messages(self.check, path, f"#include {include}\n")), 1)

    def allowed(self, path, include):
        self.assertEqual(messages(self.check, path, f"#include {include}\n"), [])

    def test_rooms_are_in_order(self):
        self.refused("launcher/util/a.c", '"launcher/agent/b.h"')
        self.allowed("launcher/agent/a.c", '"launcher/util/b.h"')
        self.allowed("launcher/agent/a.c", '"launcher/agent/b.h"')
        self.allowed("launcher/main.c", '"launcher/agent/b.h"')
        self.allowed("worker/job/a.c", '"worker/ctworker.h"')
        self.refused("worker/ctworker.h", '"worker/job/env.h"')

    def test_no_file_is_in_a_folder_that_is_no_room(self):
        self.refused("launcher/attic/a.c", '"common/err.h"')

    def test_rooms_are_read_from_the_build_files(self):
        text = "# x\nsubdir('wire')\nif a\n  subdir('no')\nendif\nsubdir('ctrun-stat')\n"
        self.assertEqual(layers.rooms_of(lambda _: text)["rendezvous"], ["wire", "ctrun-stat"])

    def test_a_crowded_folder_is_found(self):
        paths = [pathlib.PurePosixPath(f"a/{i}.c") for i in range(layers.MAX_SOURCES)]
        self.assertEqual(list(layers.crowded(paths)), [])
        self.assertEqual(len(list(layers.crowded([*paths, pathlib.PurePosixPath("a/b.py")]))), 1)

    def test_folders_say_what_they_are(self):
        build = pathlib.PurePosixPath("launcher/util/meson.build")
        self.assertEqual(list(layers.unnamed([build], lambda _: "# launcher/util: lists.\n")), [])
        self.assertEqual(len(list(layers.unnamed([build], lambda _: "x = []\n"))), 1)
        tests = pathlib.PurePosixPath("tests/sim/meson.build")
        self.assertEqual(list(layers.unnamed([tests], lambda _: "# tests/sim: nodes.\n")), [])
        self.assertEqual(len(list(layers.unnamed([tests], lambda _: "# Many nodes.\n"))), 1)
        self.assertEqual(list(layers.unnamed([pathlib.PurePosixPath("meson.build")], lambda _: "project()\n")), [])

    def test_arrows_point_down(self):
        self.refused("common/a.c", '"rendezvous/wire/proto.h"')
        self.refused("rendezvous/wire/a.c", '"worker/ctworker.h"')
        self.refused("launcher/util/a.c", '"worker/ctworker.h"')
        self.refused("launcher/util/a.c", '"kernels/device/device.h"')
        self.refused("worker/job/a.c", '"launcher/agent/agent.h"')
        self.refused("kernels/cpu/a.cu", '"worker/ctworker.h"')
        self.allowed("launcher/util/a.c", '"rendezvous/server/server_uv.h"')
        self.allowed("trainer/model/a.c", '"worker/ctworker.h"')
        self.allowed("tests/unit/launcher/agent/test_a.c", '"launcher/agent/agent.h"')

    def test_special_headers_stay_in_their_rooms(self):
        self.refused("rendezvous/store/store.c", "<uv.h>")
        self.allowed("rendezvous/server/server_uv.c", "<uv.h>")
        self.allowed("launcher/main.c", "<uv.h>")
        self.refused("worker/comm/comm.c", "<nccl.h>")
        self.refused("trainer/model/model.c", "<cuda_runtime.h>")
        self.allowed("worker/nccl/comm_nccl.c", "<nccl.h>")
        self.allowed("kernels/cpu/loss.cu", "<cuda_runtime.h>")
        self.allowed("tests/gpu/test_a.cu", "<cuda_runtime.h>")

    def test_includes_have_one_form_and_order(self):
        self.refused("common/a.c", '"err.h"')
        self.refused("common/a.c", '"../common/err.h"')
        self.refused("common/a.c", '"common/b.c"')
        late = '#include "common/err.h"\n#include "common/a.h"\n'
        self.assertEqual(len(messages(self.check, "common/a.c", late)), 1)


class Functions(unittest.TestCase):
    def test_some_functions_are_refused_in_libraries(self):
        for call in ("sprintf(a, b)", "strcpy (a, b)", "atoi(x)", "strtok(a, b)", "system(x)",
                     "rand()", "malloc(3)", "free(p)", "strdup(s)", "printf(x)", "exit(1)",
                     "fprintf(stderr, x)"):  # fmt: skip
            with self.subTest(call=call):
                found = messages(functions.check, "worker/a.c", f"    {call};\n")
                self.assertEqual(len(found), 1, found)

    def test_look_alikes_are_fine(self):
        text = 'ct_malloc(1); table->free(p); x.malloc(2); snprintf(a, 1, "sprintf(");' \
               "_exit(1); /* malloc(3) */ // free(x)\nfprintf(file, x); getrandom(b, 1, 0);\n"  # fmt: skip
        self.assertEqual(messages(functions.check, "worker/a.c", text), [])

    def test_other_places_may_call_them(self):
        self.assertEqual(messages(functions.check, "launcher/main.c", "printf(x); exit(1);"), [])
        self.assertEqual(messages(functions.check, "common/alloc.c", "malloc(1);"), [])
        self.assertEqual(messages(functions.check, "tests/unit/test_a.c", "free(p);"), [])
        excused = "free(line); /* lint-ok: memory of getline() */\n"
        self.assertEqual(messages(functions.check, "worker/a.c", excused), [])

    def test_a_failure_is_not_carried_on(self):
        for line in ("rc = rc == 0 ? f() : rc;", "rc = rc != 0 ? rc : f();", "rc = rc == 0 && x ? f() : rc;",
                     "rc = rc == 0\n    ? f()\n    : rc;", "dir_rc = dir_rc == 0 ? f() : dir_rc;"):  # fmt: skip
            with self.subTest(line=line):
                self.assertEqual(len(messages(functions.check, "worker/a.c", line)), 1)
                self.assertEqual(messages(functions.check, "tests/unit/test_a.c", line), [])

    def test_a_failure_that_ends_the_function_is_fine(self):
        text = "rc = f();\nif (rc != 0) {\n    return rc;\n}\n" \
               "rc = rc == CT_ENOMEM ? rc : CT_EFORMAT; /* rc = rc == 0 ? f() : rc */\n" \
               "bool ok = rc == 0 && x; return rc == 0 ? 1 : 2;\n"  # fmt: skip
        self.assertEqual(messages(functions.check, "worker/a.c", text), [])


class Shape(unittest.TestCase):
    def test_a_missing_licence_line_is_found(self):
        self.assertEqual(messages(shape.check, "a/b.c", GOOD_HEAD + "int x;\n"), [])
        self.assertEqual(len(messages(shape.check, "a/b.py", "x = 1\n")), 1)
        self.assertEqual(len(messages(shape.check, "tools/x", "#!/bin/bash\nls\n")), 1)

    def test_a_missing_head_is_found(self):
        bare = "/* SPDX-License-Identifier: Apache-2.0 */\nint x;\n"
        for name in ("a/b.c", "a/b.cu"):
            self.assertEqual(len(messages(shape.check, name, bare)), 1)
            self.assertEqual(len(messages(shape.check, name, bare.replace(" */", "\n */"))), 1)
            self.assertEqual(messages(shape.check, name, GOOD_HEAD + "int x;\n"), [])
        self.assertEqual(messages(shape.check, "a/b.h", bare.replace("int x;", self.GUARD)), [])

    def test_a_file_that_is_too_long_is_found(self):
        text = GOOD_HEAD + "int x;\n" * (shape.MAX_LINES - GOOD_HEAD.count("\n"))
        self.assertEqual(messages(shape.check, "a/b.c", text), [])
        self.assertEqual(len(messages(shape.check, "a/b.c", text + "int y;\n")), 1)
        self.assertEqual(len(messages(shape.check, "a/main.c", text)), 1)

    GUARD = "#ifndef CT_A_B_H\n#define CT_A_B_H\n#endif"

    def test_a_guard_has_the_path_of_its_header(self):
        good = GOOD_HEAD + "#ifndef CT_TESTS_LIB_X_H\n#define CT_TESTS_LIB_X_H\n#endif\n"
        self.assertEqual(messages(shape.check, "tests/lib/x.h", good), [])
        self.assertEqual(len(messages(shape.check, "tests/lib/y.h", good)), 1)

    def test_machine_paths_and_loose_ends_are_found(self):
        for text in ("see /wo" "rk/x", "in /ro" "ot/.cache", "at /ho" "me/jo/x", "TO" "DO: later",
                     "FIX" "ME"):  # fmt: skip
            self.assertEqual(len(messages(shape.check, "a.md", text + "\n")), 1, text)
        fine = "TO" "DO(#12): split\n$HO" "ME/x, src/wo" "rk/x, mkstemp XX" "XXXX\n"
        self.assertEqual(messages(shape.check, "a.md", fine), [])


class Registered(unittest.TestCase):
    def findings(self, paths, meson):
        paths = [pathlib.PurePosixPath(p) for p in [*paths, "meson.build"]]
        return list(registered.check(paths, lambda path: meson))

    def test_a_file_that_is_not_built_is_found(self):
        for orphan in ("tests/unit/worker/job/test_x.c", "tests/integration/store/test_x.py", "tests/lint/x.py",
                       "worker/job/x.c"):  # fmt: skip
            self.assertEqual(len(self.findings([orphan], "nothing")), 1, orphan)
        paths = ["tests/unit/worker/job/test_x.c", "tests/integration/store/test_x.py", "worker/job/y.c"]
        meson = "{'worker/job/x': {}, 'store/x': {}}\n'worker/y.c'"
        self.assertEqual(self.findings(paths, meson), [])


class Names(unittest.TestCase):
    def test_two_files_of_one_name_are_found(self):
        paths = [pathlib.PurePosixPath(p) for p in ("a/x.c", "b/x.h", "b/main.c", "c/main.c", "c/x.c")]
        self.assertEqual(len(list(names.files_of_one_name(paths))), 1)

    def test_two_tags_of_one_name_are_found(self):
        text = {"a.h": "struct x {\n", "b.h": "/* struct x { */\nunion y {\n", "c.h": "enum y {\n", "d.c": "struct x {\n"}
        paths = [pathlib.PurePosixPath(p) for p in text]
        self.assertEqual(len(list(names.tags_of_one_name(paths, lambda p: text[str(p)]))), 1)


class Calls(unittest.TestCase):
    def setUp(self):
        self.low = pathlib.PurePosixPath("launcher/util/low.c")
        self.high = pathlib.PurePosixPath("launcher/agent/high.c")

    def test_a_call_that_goes_up_is_found(self):
        down = {self.low: ({"f"}, set()), self.high: ({"g"}, {"f", "printf"})}
        up = {self.low: ({"f"}, {"g"}), self.high: ({"g"}, set())}
        self.assertEqual(list(calls.upward(down, ROOMS)), [])
        self.assertEqual(len(list(calls.upward(up, ROOMS))), 1)

    def test_a_call_up_between_floors_is_found(self):
        floor_below = pathlib.PurePosixPath("rendezvous/server/server_uv.c")
        floor_beside = pathlib.PurePosixPath("worker/job/env.c")
        down = {floor_below: ({"f"}, set()), self.low: ({"g"}, {"f"})}
        up = {floor_below: ({"f"}, {"g"}), self.low: ({"g"}, set())}
        beside = {floor_beside: ({"f"}, set()), self.low: ({"g"}, {"f"})}
        self.assertEqual(list(calls.upward(down, ROOMS)), [])
        self.assertEqual(len(list(calls.upward(up, ROOMS))), 1)
        self.assertEqual(len(list(calls.upward(beside, ROOMS))), 1)

    def test_two_functions_of_one_name_are_found(self):
        self.assertEqual(len(list(calls.twice({self.low: ({"f"}, set()), self.high: ({"f"}, set())}))), 1)
        fallback = self.low.with_name("low_fallback.c")
        self.assertEqual(list(calls.twice({self.low: ({"f"}, set()), fallback: ({"f"}, set())})), [])

    def test_objects_are_found(self):
        match = calls.OBJECT.fullmatch("launcher/libctlauncher.a.p/util_low.c.o")
        self.assertEqual(calls.source_of(match, [self.high, self.low]), self.low)
        match = calls.OBJECT.fullmatch("kernels/cuda/libctcuda.a.p/gemm.c.o")
        gemm = pathlib.PurePosixPath("kernels/cuda/gemm.c")
        self.assertEqual(calls.source_of(match, [gemm]), gemm)


class ManPages(unittest.TestCase):
    PAGE = ".It Fl r , -redirects Ar N\n.It Fl m , Fl -module\n.It Fl -tee Ns = Ns Ar N\n"
    HELP = "usage: x\n  -r, --redirects N  text --not-an-option\n  -m, --module\n      --tee N  x\n"

    def test_page_and_help_give_the_same_options(self):
        expected = {"-r", "--redirects", "-m", "--module", "--tee"}
        self.assertEqual(manpages.page_options(self.PAGE), expected)
        self.assertEqual(manpages.help_options(self.HELP), expected)

    def test_differences_are_found_both_ways(self):
        self.assertEqual(list(manpages.compare("x", self.PAGE, self.HELP)), [])
        more = self.HELP + "  --new  x\n"
        self.assertEqual(len(list(manpages.compare("x", self.PAGE, more))), 1)
        self.assertEqual(len(list(manpages.compare("x", self.PAGE + ".It Fl z\n", self.HELP))), 1)
        self.assertEqual(len(list(manpages.compare("x", "", ""))), 1)


class Pages(unittest.TestCase):
    TREE = ("README.md", "docs/A.md", "launcher/util/list.c", "launcher/util/list.h", "tools/test",
            "tests/unit/launcher/util/test_list.c")  # fmt: skip

    def found(self, text, page="README.md"):
        paths = [pathlib.PurePosixPath(p) for p in self.TREE]
        return messages(pages.Pages(paths, lambda path: "int ct_list(void);").check, page, text)

    def test_what_is_there_is_accepted(self):
        for name in ("launcher/util/list.c", "launcher/util/", "launcher", "tools/test --all", "README.md",
                     "launcher/util/*.c", "launcher/*/", "launcher/util/list.{c,h}",
                     "tests/unit/FLOOR/ROOM/test_NAME.c"):  # fmt: skip
            self.assertEqual(self.found(f"see `{name}`.\n"), [], name)

    def test_what_is_not_there_is_found(self):
        for name in ("launcher/util/gone.c", "launcher/attic/", "launcher/util/list.c/", "tools/gone --all",
                     "GONE.md", "launcher/*.c", "launcher/util/list.{c,py}", "launcher/FLOOR.c"):  # fmt: skip
            self.assertEqual(len(self.found(f"see `{name}`.\n")), 1, name)

    def test_what_is_no_path_is_left_alone(self):
        for name in ("/status", "comm/0", "--nnodes MIN:MAX", "list.c", "ct_list()", "a / b"):
            self.assertEqual(self.found(f"see `{name}`.\n"), [], name)
        self.assertEqual(self.found("```sh\ntools/gone `x`\n```\n"), [])

    def test_a_function_that_is_gone_is_found(self):
        self.assertEqual(self.found("`ct_list()` calls `main()`.\n"), [])
        self.assertEqual(len(self.found("`ct_lost()` is gone.\n")), 1)

    def test_a_link_to_nothing_is_found(self):
        self.assertEqual(self.found("[a](docs/A.md#b) [c](https://x.example/y)\n"), [])
        self.assertEqual(self.found("[a](../README.md)\n", "docs/A.md"), [])
        self.assertEqual(len(self.found("[a](README.md)\n", "docs/A.md")), 1)

    def test_a_step_names_a_function_of_its_file(self):
        self.assertEqual(self.found("1. `launcher/util/list.c`: `ct_list()` lists.\n"), [])
        self.assertEqual(self.found("2. `launcher/util/list.c`: `gone()` goes.\n"),
                         ["launcher/util/list.c has no gone()"])  # fmt: skip

    def test_only_the_pages_for_readers_are_checked(self):
        for page in ("README.md", "docs/A.md", "bench/README.md"):
            self.assertTrue(pages.is_page(pathlib.PurePosixPath(page)))
        self.assertFalse(pages.is_page(pathlib.PurePosixPath("launcher/README.md")))


class Readme(unittest.TestCase):
    def test_a_block_without_a_mark_is_found(self):
        text = "```sh run\ntrue\n```\n```sh ci\ntools/demo  # words\n```\n"
        self.assertEqual(list(readme.check_static(text, "step demo tools/demo\n")), [])
        self.assertEqual(len(list(readme.check_static(text, "tools/demonstrate\n"))), 1)
        self.assertEqual(len(list(readme.check_static(text + "```sh\nls\n```\n", "tools/demo"))), 1)

    def test_the_map_has_every_folder(self):
        text = "| `common/` | x |\n| `old/` | y |\n"
        self.assertEqual(list(readme.check_map("x.md", text, {"common", "old"})), [])
        self.assertEqual(len(list(readme.check_map("x.md", text, {"common"}))), 1)
        self.assertEqual(len(list(readme.check_map("x.md", text, {"common", "old", "new"}))), 1)
        rooms = "| `launcher/util/` | x |\n"
        self.assertEqual(list(readme.check_map("x.md", rooms, {"launcher/util"})), [])

    DRAWING = """```text
+---v-------+
| upper/    |   +---v-----+
|  c  a-b   <---| side/ x |
+---|-------+   +  d      |
    |           +---|-----+
+---v---------------v-----+
| lower/                  |
+-------------------------+
```
"""

    def test_a_drawing_without_a_room_is_found(self):
        rooms = {"upper": ["a-b", "c"], "side": ["d"], "lower": []}

        def found(rooms, text=self.DRAWING):
            return len(list(readme.check_drawing("x.md", text, rooms)))

        self.assertEqual(found(rooms), 0)
        self.assertEqual(found({**rooms, "upper": ["c", "a-b"]}), 1)
        self.assertEqual(found({**rooms, "side": ["d", "e"]}), 1)
        self.assertEqual(found({**rooms, "lower": ["f"]}), 1)
        self.assertEqual(found({**rooms, "cellar": []}), 1)
        self.assertEqual(found({"upper": ["a-b", "c"], "lower": []}), 1)
        self.assertEqual(found(rooms, ""), 3)

    def test_a_message_that_no_source_has_is_found(self):
        def findings(row, *sources):
            return len(list(readme.check_messages(f"| message | what |\n|---|---|\n| {row} | x |\n", sources)))

        row = "`rank 5 failed on gpu-2: process 812 ...`"
        self.assertEqual(findings(row, 'say(PREFIX "rank %d failed "\n    "on %.64s: %s", a, b, c);'), 0)
        self.assertEqual(findings(row, 'say("rank %d broke on %s: ");  /* "rank %d failed on %s" */'), 1)
        self.assertEqual(findings(row, 'say("%d on %s", a, b); say("rank %d on %s", a, b);'), 1)
        self.assertEqual(findings("`rank 3 hangs ...`", 'f("%srank %d hangs: %s", a, b, c);'), 0)
        self.assertEqual(findings("`rank 3 hangs ...`", 'f("%srank %d is stuck", a, b);'), 1)
        # A message in parts is known by its last one.
        self.assertEqual(findings("`node 1 (a at b) is lost`", 'f("node %d ("); f(c ? ": " : ") is lost: ");'), 0)
        self.assertEqual(findings("`--warm makes no spares: ...`", 'f("no spares: %s", a);'), 1)
        self.assertEqual(findings("rank 3 hangs", 'f("rank %d hangs");'), 1)
        self.assertEqual(len(list(readme.check_messages("", ['f("rank %d hangs");']))), 1)


if __name__ == "__main__":
    unittest.main()
