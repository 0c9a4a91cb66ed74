# SPDX-License-Identifier: Apache-2.0
"""The step that makes C++ of .cu files for the tests: what it changes, and that it guesses nothing."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["SOURCE_ROOT"], "tests", "lib", "fake_gpu"))
import fake_nvcc  # noqa: E402


class FakeNvcc(unittest.TestCase):
    def becomes(self, source, *words):
        made = fake_nvcc.translate(source)
        for word in words:
            self.assertIn(word, made)
        self.assertEqual(made.count("\n"), source.count("\n"), "lines keep their numbers")

    def refused(self, source, words):
        with self.assertRaises(fake_nvcc.Unclear) as caught:
            fake_nvcc.translate("\n\n" + source)
        self.assertIn("line 3: ", str(caught.exception))
        self.assertIn(words, str(caught.exception))

    def test_launches_become_calls(self):
        self.becomes("k<<<1, dim3(2, 3), 0, s>>>(f(a, b), c);\n", '"k"', "k(p...)", ", dim3(2, 3), 0, s, f(a, b), c)")
        self.becomes("if (x) {\n    k<T, 2><<<n\n / 2, 3, 0,\n s>>>(a);\n}\n", "k<T, 2>(p...)")
        self.refused("k<<<1, 2>>>(a);", "blocks, threads, shared memory and stream")
        self.refused("k<<<1, 2, 0, s;", "no >>>")
        self.refused("k<<<1, 2, 0, s>>>(a;", "no )")
        self.refused("f(k<<<1, 2, 0, s>>>(a));", "statement of its own")
        self.refused("(*k)<<<1, 2, 0, s>>>(a);", "no plain name")
        self.refused("k<<<1, 2, 0, s>>>;", "without arguments")

    def test_shared_memory_becomes_static(self):
        self.becomes("__shared__ float a[2][N + 1];\n", "static float a[2][N + 1]; fake_shared(static_cast<void *>(&a)")
        self.becomes("extern __shared__ double d[];\n", "double *d = static_cast<double *>(fake_dynamic_shared())")
        self.refused("extern __shared__ double d[4];", "without a size")
        self.refused("__shared__ float a[2], b;", "plain line")
        self.refused("__shared__ float a = 0;", "plain line")

    def test_kernels_that_are_launched_early_wait_first(self):
        self.becomes("__global__ void k(int *p)\n{\n    ct_begin();\n    *p = 1;\n}\nct_launch<k>(on, 1, 1, p);\n")
        self.refused("__global__ void k(int *p) { *p = 1; ct_begin(); } ct_launch<k>(on, 1, 1, p);", "begin with ct_begin()")

    def test_what_is_not_emulated(self):
        for word in ("asm", "__constant__", "printf", "cooperative_groups"):
            self.refused(f"int {word} = 0;", f"{word} is not emulated")

    def test_comments_and_strings_are_no_code(self):
        source = '/* k<<<1>>>(a) __shared__\n asm */ // <<<\nconst char *s = "<<<asm";\n'
        self.assertEqual(fake_nvcc.translate(source), source)

    def test_headers_of_device_code(self):
        with tempfile.TemporaryDirectory() as root:
            def path(name, text=None):
                name = os.path.join(root, name)
                if text is not None:
                    with open(name, "w", encoding="utf-8") as f:
                        f.write(text)
                return name

            path("a.cuh", "#pragma once\n__shared__ int a;\n")
            path("b.cu", '#include "a.cuh"\n#include "c.h"\n__shared__ int b;\n')
            fake_nvcc.main(root, path("b.cu"), path("b.cpp"))
            with open(path("b.cpp"), encoding="utf-8") as f:
                made = f.read().splitlines()
            self.assertEqual(made[0], f'#line 1 "{path("b.cu")}"')
            self.assertEqual(made[1], f'#line 1 "{path("a.cuh")}"')
            self.assertTrue(made[3].startswith("static int a;"))
            self.assertEqual(made[4:6], [f'#line 2 "{path("b.cu")}"', '#include "c.h"'])
            path("a.cuh", "asm();\n")
            with self.assertRaisesRegex(SystemExit, "a.cuh: line 1: asm is not emulated"):
                fake_nvcc.main(root, path("b.cu"), path("b.cpp"))


if __name__ == "__main__":
    unittest.main()
