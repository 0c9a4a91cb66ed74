/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a ctrun with --hosts has started this one through ssh and holds the other end of our
 * standard input. The first line was the job's token (launcher/setup/prepare.c); each further one
 * is "signal N", a signal that reached that ctrun.
 *
 * Other paths: the end of the input means that it is gone, killed perhaps: what a terminal's
 * hang-up means to a program that was started on it.
 *
 * Failure modes: a line that is nothing of this is passed over.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/num.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

void ct_agent_stdin_close(struct ct_agent_run *run)
{
    if (run->in_open) {
        run->in_open = false;
        uv_close((uv_handle_t *)&run->in, NULL);
    }
}

static void take_line(struct ct_agent_run *run, const char *line)
{
    static const char word[] = "signal ";
    int signo;
    if (strncmp(line, word, sizeof(word) - 1) == 0 &&
        ct_parse_int(line + sizeof(word) - 1, 1, SIGRTMAX, &signo) == 0 &&
        sigabbrev_np(signo) != NULL) {
        ct_agent_signals_receive(run, signo);
    }
}

static void take_bytes(struct ct_agent_run *run, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len && run->in_open; i++) {
        if (bytes[i] == '\n') {
            run->in_line[run->in_len] = '\0';
            run->in_len = 0;
            take_line(run, run->in_line);
        } else if (run->in_len < sizeof(run->in_line) - 1) {
            run->in_line[run->in_len++] = bytes[i];
        }
    }
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    struct ct_agent_run *run = handle->data;
    char bytes[256];
    (void)events;
    ssize_t n = status == 0 ? read(STDIN_FILENO, bytes, sizeof(bytes)) : 0;
    if (n > 0) {
        take_bytes(run, bytes, (size_t)n);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        ct_agent_stdin_close(run);
        ct_agent_signals_receive(run, SIGHUP);
    }
}

int ct_agent_stdin_open(struct ct_agent_run *run, struct ct_err *err)
{
    if (!run->job->options->agent_stdin) {
        return 0;
    }
    int rc = uv_poll_init(&run->loop, &run->in, STDIN_FILENO);
    if (rc != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "--agent-stdin is for a ctrun that --hosts has started: standard input "
                          "is no pipe (%s)",
                          uv_strerror(rc));
    }
    run->in_open = true;
    run->in.data = run;
    rc = uv_poll_start(&run->in, UV_READABLE, on_readable);
    return rc == 0 ? 0 : ct_err_set(err, CT_EIO, "cannot watch the input: %s", uv_strerror(rc));
}
