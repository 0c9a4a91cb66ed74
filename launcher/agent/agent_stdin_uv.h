/* SPDX-License-Identifier: Apache-2.0
 *
 * With --agent-stdin: listens to the `ctrun --hosts` that has started this one through ssh and
 * holds the other end of this one's standard input.
 */
#ifndef CT_LAUNCHER_AGENT_AGENT_STDIN_UV_H
#define CT_LAUNCHER_AGENT_AGENT_STDIN_UV_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct ct_agent_run;
typedef void (*ct_agent_signal_fn)(struct ct_agent_run *run, int signo);

/* Zeroed memory is closed. */
struct ct_agent_stdin {
    uv_poll_t poll;
    bool open;
    bool ended;    /* the ctrun that has started this one is gone, or ends the job */
    char line[32]; /* the line that has no end yet */
    size_t len;
    ct_agent_signal_fn on_signal;
    struct ct_agent_run *run; /* borrowed, for on_signal */
};

CT_MUST_CHECK int ct_agent_stdin_open(struct ct_agent_stdin *input, uv_loop_t *loop,
                                      ct_agent_signal_fn on_signal, struct ct_agent_run *run,
                                      struct ct_err *err);

/* Repeated calls are allowed. The memory must stay until the loop has run dry. */
void ct_agent_stdin_close(struct ct_agent_stdin *input);

#endif
