/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: twice a second the timer reads the progress pages and draws the line. The output
 * refuses it while workers write, and erases it before anything else is written.
 *
 * Other paths: a new window size redraws it at once. ^Z erases it before ctrun stops, so that the
 * shell's prompt begins on a fresh line. In the background nothing is drawn, because the terminal
 * is another program's.
 *
 * Failure modes: a terminal that takes no output gets no line until it does.
 *
 * Who frees: ct_live_line_close(); the handles belong to the loop until it has run dry.
 */
#include "launcher/agent/live_line_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/agent/agent_run_uv.h"
#include "launcher/output/live_line.h"
#include "launcher/util/environ.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The line comes after two periods without output, so it neither flickers nor shows in a job that
 * is over at once. */
#define PERIOD_MS 500

/* What a terminal has that does not say how wide it is. */
#define DEFAULT_COLUMNS 80

static size_t columns_here(void)
{
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    /* The last column stays free: a character there may wrap the line. */
    return known ? size.ws_col - 1u : DEFAULT_COLUMNS - 1;
}

/* Does the terminal belong to another job of the shell? */
static bool in_background(void)
{
    pid_t group = tcgetpgrp(STDERR_FILENO);
    return group > 0 && group != getpgrp();
}

static enum ct_live_state state_of(const struct ct_agent *agent)
{
    switch ((enum ct_agent_state)agent->sm.state) {
    case CT_AGENT_STARTING:
        return CT_LIVE_STARTING;
    case CT_AGENT_RUNNING:
        return CT_LIVE_RUNNING;
    case CT_AGENT_FINISHED:
    case CT_AGENT_STOPPING:
    case CT_AGENT_DISMISSING:
        return CT_LIVE_STOPPING;
    case CT_AGENT_IDLE:
    case CT_AGENT_JOINING:
    case CT_AGENT_DONE:
        break;
    }
    return CT_LIVE_JOINING;
}

static void draw(struct ct_live_line_timer *live)
{
    char text[CT_LIVE_LINE_MAX];
    int64_t now_ns = ct_clock_now(NULL);
    struct ct_live_facts facts = {
        .state = state_of(live->agent),
        .for_ns = now_ns - live->agent->sm.since_ns,
        .awaited = live->story->waited,
        .workers = live->agent->workers,
        .first_rank = live->story->first_rank,
        .alive = live->agent->alive,
        .restarts = live->story->restarts,
        .max_restarts = live->job->options->max_restarts,
    };
    if (live->progress->fd >= 0) {
        ct_progress_reader_read_all(live->progress, now_ns, live->pages, live->valid);
        ct_live_line_progress(live->pages, live->valid, live->progress->workers, now_ns, &facts);
    }
    ct_live_line(&facts, columns_here(), text);
    ct_output_live(live->output, in_background() ? NULL : text);
}

static void on_live_timer(uv_timer_t *timer)
{
    draw(timer->data);
}

static void on_resized(uv_signal_t *handle, int signo)
{
    (void)signo;
    draw(handle->data);
}

static void on_suspended(uv_signal_t *handle, int signo)
{
    struct ct_live_line_timer *live = handle->data;
    ct_output_live(live->output, NULL);
    (void)uv_signal_stop(handle); /* the default action is back */
    (void)raise(signo);
    if (live->open) { /* SIGCONT has come */
        (void)uv_signal_start(handle, on_suspended, signo);
    }
}

static bool is_ignored(int signo)
{
    struct sigaction action;
    return sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static bool wanted(const struct ct_live_line_timer *live)
{
    const char *term = ct_environ_get(live->job->env, "TERM");
    return !live->job->options->no_progress && ct_output_can_live(live->output) && term != NULL &&
           strcmp(term, "dumb") != 0 && ct_agent_report_speaks(live->job->resolved);
}

int ct_live_line_open(struct ct_live_line_timer *live, uv_loop_t *loop, struct ct_err *err)
{
    if (!wanted(live)) {
        return 0;
    }
    size_t workers = (size_t)live->agent->workers;
    live->pages = ct_calloc(workers, sizeof(*live->pages));
    live->valid = ct_calloc(workers, sizeof(*live->valid));
    if (live->pages == NULL || live->valid == NULL) {
        ct_free(live->pages);
        ct_free(live->valid);
        live->pages = NULL;
        live->valid = NULL;
        return ct_err_set(err, CT_ENOMEM, "out of memory for the live line");
    }
    (void)uv_timer_init(loop, &live->timer); /* cannot fail */
    live->timer.data = live;
    (void)uv_signal_init(loop, &live->resized); /* cannot fail in a loop that was initialised */
    (void)uv_signal_init(loop, &live->suspended);
    live->resized.data = live->suspended.data = live;
    live->open = true;
    int rc = uv_timer_start(&live->timer, on_live_timer, PERIOD_MS, PERIOD_MS);
    if (rc == 0) {
        rc = uv_signal_start(&live->resized, on_resized, SIGWINCH);
    }
    if (rc == 0 && !is_ignored(SIGTSTP)) {
        rc = uv_signal_start(&live->suspended, on_suspended, SIGTSTP);
    }
    return rc == 0 ? 0 : ct_err_set(err, CT_EIO, "cannot set a timer: %s", uv_strerror(rc));
}

void ct_live_line_close(struct ct_live_line_timer *live)
{
    if (!live->open) {
        return;
    }
    live->open = false;
    ct_output_live(live->output, NULL);
    ct_free(live->pages);
    ct_free(live->valid);
    uv_close((uv_handle_t *)&live->timer, NULL);
    uv_close((uv_handle_t *)&live->resized, NULL);
    uv_close((uv_handle_t *)&live->suspended, NULL);
}
