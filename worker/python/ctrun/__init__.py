# SPDX-License-Identifier: Apache-2.0
"""ctrun from Python: call a function on all ranks of a job.

    import ctrun

    losses = ctrun.launch(train, args=(config,), nproc=4)

The program `ctrun` and its manual page ctrun(1) are the whole of it; this is for notebooks, tests and
schedulers that are written in Python.
"""

from ._launch import LaunchError, launch, program

__all__ = ["LaunchError", "launch", "program"]
