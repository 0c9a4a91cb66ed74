/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the first line of the input was the job's token (launcher/setup/prepare.c); each
 * further line is "signal N", a signal that reached the ctrun which has started this one.
 *
 * Other paths: the end of the input means that the other ctrun is gone, perhaps killed. It counts
 * as SIGHUP, the signal that a program gets when its terminal is closed.
 *
 * Failure modes: any other line is ignored.
 *
 * Who frees: ct_agent_stdin_close(); the handle belongs to the loop until it has run dry.
 */
#include "launcher/agent/agent_stdin_uv.h"

#include "common/num.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

void ct_agent_stdin_close(struct ct_agent_stdin *input)
{
    if (input->open) {
        input->open = false;
        uv_close((uv_handle_t *)&input->poll, NULL);
    }
}

static void take_line(struct ct_agent_stdin *input)
{
    static const char word[] = "signal ";
    int signo;
    if (strncmp(input->line, word, sizeof(word) - 1) == 0 &&
        ct_parse_int(input->line + sizeof(word) - 1, 1, SIGRTMAX, &signo) == 0 &&
        sigabbrev_np(signo) != NULL) {
        input->on_signal(input->run, signo);
    }
}

static void take_bytes(struct ct_agent_stdin *input, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len && input->open; i++) {
        if (bytes[i] == '\n') {
            input->line[input->len] = '\0';
            input->len = 0;
            take_line(input);
        } else if (input->len < sizeof(input->line) - 1) {
            input->line[input->len++] = bytes[i];
        }
    }
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    struct ct_agent_stdin *input = handle->data;
    char bytes[256];
    (void)events;
    ssize_t n = status == 0 ? read(STDIN_FILENO, bytes, sizeof(bytes)) : 0;
    if (n > 0) {
        take_bytes(input, bytes, (size_t)n);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        ct_agent_stdin_close(input);
        input->ended = true;
        input->on_signal(input->run, SIGHUP);
    }
}

int ct_agent_stdin_open(struct ct_agent_stdin *input, uv_loop_t *loop, ct_agent_signal_fn on_signal,
                        struct ct_agent_run *run, struct ct_err *err)
{
    int rc = uv_poll_init(loop, &input->poll, STDIN_FILENO);
    if (rc != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "--agent-stdin is for a ctrun that --hosts has started: standard input "
                          "is no pipe (%s)",
                          uv_strerror(rc));
    }
    input->open = true;
    input->on_signal = on_signal;
    input->run = run;
    input->poll.data = input;
    rc = uv_poll_start(&input->poll, UV_READABLE, on_readable);
    return rc == 0 ? 0 : ct_err_set(err, CT_EIO, "cannot watch the input: %s", uv_strerror(rc));
}
