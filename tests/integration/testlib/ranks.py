# SPDX-License-Identifier: Apache-2.0
"""Ranks of one job without a launcher: a store and one process per rank, each with the environment
that a launcher gives. For tests of what workers do, which should not fail for a launcher's reasons."""

from .paths import program


def start_ranks(case, count, argv, env=None):
    """Starts `count` processes of `argv`; returns them in rank order. The case ends them."""
    _, port = case.start_ctrdzvd()
    base = {
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "ranks",
        "OMP_NUM_THREADS": 1,
        **(env or {}),
    }
    return [
        case.start(program(argv[0]), *argv[1:], env={**base, "RANK": r, "LOCAL_RANK": r})
        for r in range(count)
    ]
