# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/gpu-check: what it builds, what it runs in which order, and what it brings home."""
