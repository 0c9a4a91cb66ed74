# SPDX-License-Identifier: Apache-2.0
"""A part of bench/warm_frameworks.py: PyTorch's own tests of torchrun."""
