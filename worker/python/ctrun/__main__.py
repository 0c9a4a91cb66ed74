# SPDX-License-Identifier: Apache-2.0
"""python -m ctrun install-torchrun | remove-torchrun

Puts a `torchrun` that is ctrun beside the program ctrun, where PyTorch's may be: that one is kept as
torchrun.pytorch and comes back with remove-torchrun. An update of PyTorch writes its own again.
"""

import os
import pathlib
import sys

from ._launch import program

#: By this line our script is known.
_MARK = "# This torchrun is ctrun; `python -m ctrun remove-torchrun` gives the old one back."


def _is_ours(path: pathlib.Path) -> bool:
    try:
        return _MARK in path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False


def install(ctrun: pathlib.Path) -> str:
    alias, kept = ctrun.with_name("torchrun"), ctrun.with_name("torchrun.pytorch")
    if (alias.exists() or alias.is_symlink()) and not _is_ours(alias):
        alias.replace(kept)
    draft = ctrun.with_name(f".torchrun-{os.getpid()}")
    place = '"$(dirname -- "$(readlink -f -- "$0")")'  # also where a link leads here
    # `pip uninstall ctrun` does not know of this file, and it shall not leave a torchrun that is broken.
    gone = f'[ -x {place}/ctrun" ] || exec {place}/torchrun.pytorch" "$@"'
    draft.write_text(f'#!/bin/sh\n{_MARK}\n{gone}\nexec {place}/ctrun" "$@"\n', encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(alias)
    return f"{alias} is ctrun now" + (f"; PyTorch's is {kept}" if kept.exists() else "")


def remove(ctrun: pathlib.Path) -> str:
    alias, kept = ctrun.with_name("torchrun"), ctrun.with_name("torchrun.pytorch")
    if not _is_ours(alias):
        return f"{alias} is not ctrun; nothing to do"
    if kept.exists():
        kept.replace(alias)
        return f"{alias} is PyTorch's again"
    alias.unlink()
    return f"{alias} is gone"


def main(words: "list[str]") -> int:
    actions = {"install-torchrun": install, "remove-torchrun": remove}
    if len(words) != 1 or words[0] not in actions:
        print(__doc__.strip().partition("\n")[0], file=sys.stderr)
        return 2
    try:
        print(actions[words[0]](pathlib.Path(program()).absolute()))
    except OSError as error:
        print(f"ctrun: cannot do that: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
