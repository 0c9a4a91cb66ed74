# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/failover.py: a job that is struck, what its agents' logs say, an etcd, torchrun beside it."""
