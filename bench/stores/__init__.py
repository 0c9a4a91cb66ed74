# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/store.py: its rows, the servers that it compares, viewers of a page, PyTorch's side."""
