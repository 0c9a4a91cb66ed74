# SPDX-License-Identifier: Apache-2.0
"""Where things are; meson sets both variables, so tests never guess."""

import os
import pathlib
import unittest

BUILD_ROOT = pathlib.Path(os.environ["BUILD_ROOT"])
SOURCE_ROOT = pathlib.Path(os.environ["SOURCE_ROOT"])


def program(name):
    """Path of a built program; skips the calling test when this build has none."""
    path = BUILD_ROOT / name
    if not path.exists():
        raise unittest.SkipTest(f"{name} is not part of this build")
    return str(path)
