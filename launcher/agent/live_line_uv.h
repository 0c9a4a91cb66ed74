/* SPDX-License-Identifier: Apache-2.0
 *
 * The live line below the output while nothing scrolls (launcher/output/live_line.h): when it is
 * drawn, and how it gives way.
 */
#ifndef CT_LAUNCHER_AGENT_LIVE_LINE_UV_H
#define CT_LAUNCHER_AGENT_LIVE_LINE_UV_H

#include "launcher/agent/agent.h"
#include "launcher/output/output_uv.h"
#include "launcher/report/job_story.h"
#include "launcher/setup/job_spec.h"
#include "launcher/worker/progress_reader.h"

#include <stdbool.h>
#include <uv.h>

/* The first group is borrowed and set by the caller. */
struct ct_live_line_timer {
    const struct ct_job_spec *job;
    const struct ct_agent *agent;
    const struct ct_progress_reader *progress;
    const struct ct_job_story *story;
    struct ct_output *output;
    bool open;
    struct ct_progress *pages;
    bool *valid;
    uv_timer_t timer;
    uv_signal_t resized, suspended; /* SIGWINCH, SIGTSTP */
};

/* Stays closed without a terminal, with --no-progress, and if another ctrun has the terminal. */
CT_MUST_CHECK int ct_live_line_open(struct ct_live_line_timer *live, uv_loop_t *loop,
                                    struct ct_err *err);

/* Erases the line. Repeated calls and zeroed memory are allowed. */
void ct_live_line_close(struct ct_live_line_timer *live);

#endif
