/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a signal of --signals-to-handle becomes an event of the agent. The first one, unless
 * it is SIGINT, is a preemption: the workers of the whole job hear of it by the signal itself, by a
 * key in their store and by a file, and have until the deadline.
 *
 * Failure modes: a notice that cannot be written is told; the signal goes out all the same.
 *
 * Who frees: ct_run_close_signals(); from then on a signal ends ctrun in the usual way.
 */
#include "launcher/agent_impl_uv.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/num.h"
#include "launcher/environ.h"
#include "rendezvous/json.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* By PyTorch's habits: PrefixStore's separator and no leading slash. */
#define NOTICE_KEY "ctrun/preempt"

/* nohup(1) and a shell's "&" ignore signals on the user's behalf; that stays. */
static bool is_ignored(int signo)
{
    struct sigaction action;
    return sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* The scheduler kills what is still there at the end of the allocation. */
static int64_t deadline_ms(const struct ct_run *run)
{
    int64_t left_ms = run->job->options->shutdown_timeout_ms, end_s;
    const char *end = ct_environ_get(run->job->env, "SLURM_JOB_END_TIME");
    if (end != NULL && ct_parse_i64(end, 1, INT64_MAX / 2000, &end_s) == 0) {
        int64_t until_ms = (end_s - (int64_t)time(NULL)) * 1000;
        until_ms = until_ms > 0 ? until_ms : 0;
        left_ms = until_ms < left_ms ? until_ms : left_ms;
    }
    return left_ms;
}

static void say_signal(struct ct_run *run, int signo)
{
    int alive = run->agent.alive;
    ct_run_say(run, "received SIG%s: stopping %d worker%s%s", sigabbrev_np(signo), alive,
               alive == 1 ? "" : "s", signo == SIGINT ? " (once more kills them)" : "");
}

void ct_run_signal(struct ct_run *run, int signo)
{
    if (ct_run_speaks(run)) {
        say_signal(run, signo);
    }
    if (run->agent.signo == 0) {
        run->preempt_deadline_ms = deadline_ms(run);
    }
    ct_run_step(run, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = signo});
}

static void on_signal(uv_signal_t *handle, int signo)
{
    ct_run_signal(handle->data, signo);
}

int ct_run_open_signals(struct ct_run *run, struct ct_err *err)
{
    struct ct_signals wanted;
    ct_signals_parse(run->job->options->signals, &run->log, &wanted);
    for (size_t i = 0; i < wanted.count; i++) {
        if (is_ignored(wanted.signo[i])) {
            continue;
        }
        uv_signal_t *handle = &run->signals[run->signal_count];
        int rc = uv_signal_init(&run->loop, handle);
        if (rc == 0) {
            run->signal_count++;
            handle->data = run;
            rc = uv_signal_start(handle, on_signal, wanted.signo[i]);
        }
        if (rc != 0) {
            return ct_err_set(err, CT_EIO, "cannot watch signals: %s", uv_strerror(rc));
        }
    }
    return 0;
}

void ct_run_close_signals(struct ct_run *run)
{
    for (size_t i = 0; i < run->signal_count; i++) {
        uv_close((uv_handle_t *)&run->signals[i], NULL);
    }
    run->signal_count = 0;
}

/* ---- the notice -------------------------------------------------------------------------------
 */

/* Gives the text; NULL when memory is out. */
static char *notice_text(const struct ct_run *run)
{
    cJSON *root = cJSON_CreateObject();
    char *text = NULL;
    double deadline_s = (double)time(NULL) + (double)run->preempt_deadline_ms / 1000;
    if (root != NULL && ct_json_add_number(root, "signo", run->agent.signo) &&
        ct_json_add_text(root, "signal", sigabbrev_np(run->agent.signo)) &&
        ct_json_add_number(root, "generation", run->plan.generation) &&
        ct_json_add_number(root, "deadline", deadline_s) &&
        ct_json_add_number(root, "seconds", (double)run->preempt_deadline_ms / 1000)) {
        text = cJSON_PrintUnformatted(root);
    }
    cJSON_Delete(root);
    return text;
}

/* The file appears whole or not at all. */
static void write_notice(struct ct_run *run, const char *text)
{
    if (run->preempt_file == NULL) {
        return;
    }
    char *draft = ct_asprintf("%s.new", run->preempt_file);
    int fd = draft != NULL ? open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    bool ok = fd >= 0 && ct_fd_write_all(fd, text, strlen(text)) == 0;
    if (fd >= 0) {
        ok = close(fd) == 0 && ok;
    }
    if (!ok || rename(draft, run->preempt_file) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "cannot write %s", run->preempt_file);
    }
    ct_free(draft);
}

void ct_run_notice(struct ct_run *run)
{
    char *text = notice_text(run);
    if (text == NULL) {
        return;
    }
    struct ct_server *store = run->server != NULL ? run->server : run->own;
    if (store != NULL && run->plan.node_rank == 0 && ct_server_set(store, NOTICE_KEY, text) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "cannot set the key " NOTICE_KEY);
    }
    write_notice(run, text);
    cJSON_free(text);
}
