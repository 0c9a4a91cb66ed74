# SPDX-License-Identifier: Apache-2.0
"""Where PyTorch is: Debian's (1.13 in Debian 12, the legacy dialect of the store) and PyPI's current
one, in the virtual environment that `tools/test --with-torch` makes."""

import os
import pathlib
import subprocess
import unittest

from .case import Case as BaseCase
from .paths import SOURCE_ROOT

PROGRAMS = SOURCE_ROOT / "tests" / "torch"
# Importing torch takes seconds; a loaded machine takes many.
LIMIT = 180


def _venv_python():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    venv = os.environ.get("CTRUN_TORCH_VENV") or pathlib.Path(cache) / "ctrun" / "torch-venv"
    return str(pathlib.Path(venv) / "bin" / "python")


DEBIAN = "/usr/bin/python3"
CURRENT = _venv_python()


class Case(BaseCase):
    """Tests with the PyTorch of the interpreter `python`, which a subclass names; they are
    skipped where it has none."""

    python = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        probe = "import torch, torch.distributed as d; assert d.is_available(); print(torch.__version__)"
        try:
            found = subprocess.run(
                [cls.python, "-c", probe], capture_output=True, text=True, timeout=LIMIT,
                check=True,
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError) as error:
            raise unittest.SkipTest(f"no PyTorch under {cls.python}: {error}") from None
        print(f"{cls.python} has PyTorch {found.stdout.strip()}")
