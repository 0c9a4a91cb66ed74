/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a signal of --signals-to-handle becomes an event of the agent. The first one, unless
 * it is SIGINT, is a preemption: the workers of the whole job hear of it by the signal itself, by a
 * key in their store and by a file, and have until the deadline.
 *
 * Before SIGQUIT does that, the workers are asked where they stand.
 *
 * Failure modes: if a notice cannot be written, a warning says so, and the signal is sent all the
 * same.
 *
 * Who frees: close_all() of agent_uv.c; from then on a signal ends ctrun in the usual way.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/file.h"
#include "common/num.h"
#include "launcher/util/environ.h"
#include "rendezvous/wire/json.h"

#include <signal.h>
#include <string.h>
#include <time.h>

/* The form of PyTorch's keys: PrefixStore separates with a slash, and puts none in front. */
#define NOTICE_KEY "ctrun/preempt"

/* The clocks of Slurm and of this machine may differ by this. */
#define CLOCKS_DIFFER_MS 5000

/* How long workers may take to stop: --shutdown-timeout, but at most until the end of the
 * allocation. An end that has come says nothing: Slurm sends SIGTERM then, and kills only after its
 * KillWait, 30 s by default. */
static int64_t deadline_ms(const struct ct_job_spec *job)
{
    int64_t left_ms = job->options->shutdown_timeout_ms, end_s;
    const char *end = ct_environ_get(job->env, "SLURM_JOB_END_TIME");
    if (end != NULL && ct_parse_i64(end, 1, INT64_MAX / 2000, &end_s) == 0) {
        int64_t until_ms = (end_s - (int64_t)time(NULL)) * 1000;
        left_ms = until_ms > CLOCKS_DIFFER_MS && until_ms < left_ms ? until_ms : left_ms;
    }
    return left_ms;
}

static void say_signal(struct ct_output *output, const struct ct_agent *agent, int signo)
{
    int alive = agent->alive;
    bool kills = signo == SIGINT && agent->signo != 0;
    if (alive == 0) {
        ct_agent_report_say(output, "received SIG%s: ending, no worker runs", sigabbrev_np(signo));
        return;
    }
    ct_agent_report_say(output, "received SIG%s%s: %s %d worker%s%s", sigabbrev_np(signo),
                        kills ? " again" : "", kills ? "killing" : "stopping", alive,
                        alive == 1 ? "" : "s",
                        signo == SIGINT && !kills ? " (once more kills them)" : "");
}

static void obey(struct ct_agent_run *run, int signo)
{
    ct_agent_trace_signal(run, signo);
    if (run->agent.signo == 0) {
        run->requests.deadline_ms = deadline_ms(run->job);
    }
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = signo});
}

static void on_stacks(void *data, const struct ct_probe *probe)
{
    struct ct_agent_run *run = data;
    struct ct_buf text = CT_BUF_INIT;
    const struct ct_explain explain = ct_stack_asker_explain(&run->asker, probe, -1);
    run->requests.stacks = NULL;
    if (ct_explain_print(&explain, CT_REPORT_PREFIX, &text) == 0 && text.len > 0) {
        ct_output_say(run->output, CT_OUTPUT_ERR, (const char *)ct_buf_bytes(&text), text.len);
    }
    ct_buf_fini(&text);
    obey(run, SIGQUIT);
}

/* Asks the workers where they stand, as SIGQUIT asks for a core dump. Returns false if nobody can
 * be asked. */
static bool begin_stacks(struct ct_agent_run *run)
{
    const struct ct_stack_question question = {
        .only = -1, .suspect = -1, .budget_ms = run->job->options->hang_stacks_ms};
    return run->agent.signo == 0 && run->agent.alive > 0 && question.budget_ms > 0 &&
           run->requests.stacks == NULL &&
           ct_stack_asker_ask(&run->asker, &question, on_stacks, run, &run->requests.stacks,
                              NULL) == 0;
}

void ct_agent_signals_stop_stacks(struct ct_agent_run *run)
{
    ct_probe_task_stop(run->requests.stacks);
    run->requests.stacks = NULL;
}

void ct_agent_signals_receive(struct ct_agent_run *run, int signo)
{
    if (run->store.end.lingers) {
        run->store.end.lingers = false;
        ct_agent_signals_close(run);
        return;
    }
    /* A ctrun that --hosts has started ends without a word if it had started no worker. */
    bool silent = run->requests.input.ended && run->agent.alive == 0;
    if (!silent && ct_agent_report_speaks(run->job->resolved)) {
        say_signal(run->output, &run->agent, signo);
    }
    if (signo == SIGQUIT && begin_stacks(run)) {
        return;
    }
    ct_agent_signals_stop_stacks(run); /* who asks a second time does not want to wait */
    obey(run, signo);
}

static void on_signal(uv_signal_t *handle, int signo)
{
    ct_agent_signals_receive(handle->data, signo);
}

int ct_agent_signals_open(struct ct_agent_run *run, struct ct_err *err)
{
    return ct_signals_watch_open(&run->requests.signals, &run->loop, run->job->options->signals,
                                 &run->log, on_signal, run, err);
}

void ct_agent_signals_close(struct ct_agent_run *run)
{
    ct_agent_signals_stop_stacks(run);
    ct_signals_watch_close(&run->requests.signals);
    ct_agent_stdin_close(&run->requests.input);
}

/* ---- the notice ----------------------------------------------------------------------------- */

/* Returns the text, or NULL without memory. */
static char *notice_text(int signo, int generation, int64_t deadline_ms)
{
    cJSON *root = cJSON_CreateObject();
    char *text = NULL;
    double deadline_s = (double)time(NULL) + (double)deadline_ms / 1000;
    if (root != NULL && ct_json_add_number(root, "signo", signo) &&
        ct_json_add_text(root, "signal", sigabbrev_np(signo)) &&
        ct_json_add_number(root, "generation", generation) &&
        ct_json_add_number(root, "deadline", deadline_s) &&
        ct_json_add_number(root, "seconds", (double)deadline_ms / 1000)) {
        text = cJSON_PrintUnformatted(root);
    }
    cJSON_Delete(root);
    return text;
}

void ct_agent_signals_notify(struct ct_agent_run *run)
{
    struct ct_err err = {0};
    char *text =
        notice_text(run->agent.signo, run->worker_env.generation, run->requests.deadline_ms);
    if (text == NULL) {
        return;
    }
    struct ct_server *store = run->store.server != NULL ? run->store.server : run->store.own;
    if (store != NULL && run->membership.node_rank == 0 &&
        ct_server_set(store, NOTICE_KEY, text) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "cannot set the key " NOTICE_KEY);
    }
    if (run->requests.notice_file != NULL &&
        ct_file_replace(run->requests.notice_file, text, strlen(text), &err) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", err.text);
    }
    cJSON_free(text);
}
