/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables that may differ between a spare of `ctrun --warm` and the worker that it becomes: a
 * program reads them when it joins its peers. A library may have read any other while it was
 * loaded. The build writes this list into the spare in Python, too (launcher/warm/meson.build).
 */
#ifndef CT_WORKER_JOB_LATE_VARIABLES_H
#define CT_WORKER_JOB_LATE_VARIABLES_H

#define CTW_LATE_VARIABLES                                                                     \
    "RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",    \
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", \
        "TORCH_WORKER_SERVER_SOCKET", "CTRUN_GENERATION", "GLOO_SOCKET_IFNAME",                \
        "NCCL_SOCKET_IFNAME"

#endif
