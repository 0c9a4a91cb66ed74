/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: nothing is printed.
 *
 * A failure here: its headline is printed at once. When everything is stopped, what the worker
 * wrote is collected and sent to the membership. When it is known what comes next, the report is
 * printed.
 *
 * A failure elsewhere: its headline is printed when the membership reports it. At the end of a job
 * of several machines, each of them prints the story of the whole job.
 *
 * Failure modes: without memory a text is left out. If the file of --report cannot be written, a
 * warning says so.
 *
 * Who frees: the texts of a failure are freed when the next generation begins, or by
 * ct_agent_run().
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/ranges.h"
#include "common/text.h"
#include "launcher/agent/job_status.h"
#include "launcher/report/causes.h"
#include "launcher/report/report_file.h"
#include "launcher/util/environ.h"
#include "rendezvous/wire/json_fields.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

/* ---- saying --------------------------------------------------------------------------------- */

bool ct_agent_report_speaks(const struct ct_resolved *resolved)
{
    return resolved->mode != CT_MODE_SHIM || resolved->local_rank == 0;
}

/* Does another node tell the story of the job, because both have the same screen? */
static bool told_by_another(const struct ct_agent_run *run)
{
    const struct ct_job_story *story = &run->report.story;
    return run->job->resolved->one_screen && story->several_nodes &&
           ct_job_story_reporting_node(story, run->agent.lost) != story->node_rank;
}

/* Did the first failure of the job happen here? */
static bool is_culprit(const struct ct_agent_run *run)
{
    return run->agent.failure.known && ct_job_story_failure_elsewhere(&run->report.story) == NULL;
}

/* Did a failure on another node, which has the same screen, come before the one here? */
static bool follows_another(const struct ct_agent_run *run)
{
    return run->job->resolved->one_screen && run->report.story.several_nodes && !is_culprit(run);
}

static void say(struct ct_output *output, const struct ct_buf *text)
{
    if (output != NULL && text->len > 0 && ct_buf_status(text) == 0) {
        ct_output_say(output, CT_OUTPUT_ERR, (const char *)ct_buf_bytes(text), text->len);
    }
}

void ct_agent_report_say(struct ct_output *output, const char *fmt, ...)
{
    struct ct_buf text = CT_BUF_INIT;
    char line[CT_FAILURE_WHAT_MAX * 2];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    ct_text_clean(line); /* the text may come from another machine */
    ct_buf_addf(&text, CT_REPORT_PREFIX "%s\n", line);
    say(output, &text);
    ct_buf_fini(&text);
}

void ct_agent_report_log(void *data, enum ct_log_level level, const char *line)
{
    struct ct_output **output = data;
    ct_agent_report_say(*output, "%s: %s", ct_log_level_name(level), line);
}

/* ---- a failure here ------------------------------------------------------------------------- */

static void fill_what(const struct ct_report_worker *worker, const struct ct_err *start_err,
                      struct ct_failure *failure)
{
    struct ct_buf text = CT_BUF_INIT;
    if (worker->end.kind == CT_END_NOT_STARTED || worker->end.kind == CT_END_UNFIT) {
        ct_buf_addf(&text, "%s", start_err->text);
    } else {
        if (worker->end.kind != CT_END_ALL_HUNG) {
            ct_buf_addf(&text, "process %ld ", (long)worker->pid);
        }
        ct_worker_end_describe(&worker->end, &text);
    }
    const char *words = ct_buf_status(&text) == 0 ? ct_buf_cstr(&text) : NULL;
    (void)snprintf(failure->what, sizeof(failure->what), "%.*s", CT_FAILURE_WHAT_MAX - 1,
                   words != NULL ? words : "");
    ct_buf_fini(&text);
}

/* Did the worker fail within a second and before its first step? Then a new process will probably
 * fail, too. A kill from outside does not count, unless by the kernel because memory ran out. */
static bool failed_early(const struct ct_worker *worker, int local_rank,
                         const struct ct_progress_reader *reader, int64_t now_ns)
{
    struct ct_progress progress;
    bool killed = ct_worker_end_by_another(&worker->report.end) && worker->report.memory[0] == '\0';
    bool stepped =
        ct_progress_reader_read(reader, local_rank, now_ns, &progress) && progress.turns > 0;
    return !killed && !stepped && now_ns - worker->started_ns < CT_NS_PER_S;
}

/* Returns the steps that workers here have completed in this generation. */
static struct ct_steps steps_here(const struct ct_agent_run *run)
{
    struct ct_steps steps = {0};
    for (int i = 0; i < run->workers.count; i++) {
        struct ct_progress progress;
        if (!ct_progress_reader_read(&run->workers.progress, i, ct_clock_now(NULL), &progress) ||
            progress.turns == 0) {
            continue;
        }
        int64_t last = progress.step < CT_JSON_INT_MAX ? progress.step : CT_JSON_INT_MAX;
        int64_t first = last > progress.turns ? last - progress.turns : 0;
        steps.first = !steps.any || first < steps.first ? first : steps.first;
        steps.last = last > steps.last ? last : steps.last;
        steps.any = true;
    }
    return steps;
}

void ct_agent_report_failure(struct ct_agent_run *run)
{
    const struct ct_agent_failure *known = &run->agent.failure;
    const struct ct_report_worker *worker = &run->workers.list[known->local_rank].report;
    bool unfit = known->end.kind == CT_END_UNFIT;
    bool nobody = known->end.kind == CT_END_ALL_HUNG || unfit;
    bool barred = ct_worker_end_is_barred(&known->end, &run->job->options->no_restart_on);
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    ct_failure_fini(&run->report.failure);
    run->report.failure = (struct ct_failure){
        .kind = CT_FAILURE_WORKER,
        .generation = run->agent.generation,
        .node_rank = run->membership.node_rank,
        .rank = nobody ? -1 : run->worker_env.first_rank + known->local_rank,
        .local_rank = nobody ? -1 : known->local_rank,
        .pid = nobody ? 0 : worker->pid,
        .exit_code = barred ? CT_EXIT_NO_REQUEUE : ct_worker_end_exit_code(&known->end),
        .permanent = barred || !ct_worker_end_may_restart(&known->end),
        .unfit = unfit,
        .early = !unfit && failed_early(&run->workers.list[known->local_rank], known->local_rank,
                                        &run->workers.progress, ct_clock_now(NULL)),
        .steps = steps_here(run),
        .time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / CT_NS_PER_MS,
    };
    (void)snprintf(run->report.failure.host, sizeof(run->report.failure.host), "%s",
                   run->job->machine->host);
    fill_what(worker, &run->workers.start_err, &run->report.failure);
    ct_trace_instant(&run->trace.data, nobody ? -1 : known->local_rank, run->report.failure.what,
                     ct_clock_now(NULL));
}

static void fill_report(const struct ct_agent_run *run, struct ct_report_worker *table,
                        struct ct_report *report)
{
    for (int i = 0; i < run->workers.count; i++) {
        table[i] = run->workers.list[i].report;
    }
    *report = (struct ct_report){
        .host = run->job->machine->host,
        .start_error = run->agent.failure.end.kind == CT_END_NOT_STARTED ||
                               run->agent.failure.end.kind == CT_END_UNFIT
                           ? run->workers.start_err.text
                           : NULL,
        .workers = table,
        .count = run->job->resolved->workers,
        .failed = run->agent.failure.local_rank,
        .restarts = run->report.story.restarts,
        .max_restarts = run->job->options->max_restarts,
        .will_restart = run->agent.will_restart,
        .alone = !run->job->resolved->shared,
        .barred =
            run->agent.failure.known &&
            ct_worker_end_is_barred(&run->agent.failure.end, &run->job->options->no_restart_on),
        .shutdown_timeout_ms =
            ct_agent_failover_grace_ms(run, run->job->options->shutdown_timeout_ms),
        .tail = "",
        .kernel_stack = run->report.kernel_stack,
        .strays = run->workers.stopped.strays,
        .killed = run->workers.stopped.killed,
        .left = run->workers.stopped.left,
    };
}

/* Says why this node stops although nothing here has failed. */
static void say_told(struct ct_agent_run *run)
{
    const struct ct_failure *first = ct_job_story_failure_elsewhere(&run->report.story);
    if (first != NULL && first->kind == CT_FAILURE_WORKER && run->job->resolved->one_screen) {
        return; /* the node of that worker has already said so on this screen */
    }
    if (first != NULL) {
        struct ct_buf text = CT_BUF_INIT;
        ct_buf_addf(&text, CT_REPORT_PREFIX);
        ct_job_story_headline(first, &text);
        ct_buf_addf(&text, "\n");
        say(run->output, &text);
        ct_buf_fini(&text);
    } else if (!run->agent.lost && run->report.stop_why[0] != '\0') {
        ct_agent_report_say(run->output, "%s", run->report.stop_why);
    }
}

void ct_agent_report_headline(struct ct_agent_run *run)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_report report;
    struct ct_report_worker *table =
        ct_calloc((size_t)run->job->resolved->workers, sizeof(struct ct_report_worker));
    bool speaks = ct_agent_report_speaks(run->job->resolved) && !told_by_another(run);
    if (table != NULL && (run->agent.failure.known || speaks)) {
        fill_report(run, table, &report);
        if (run->agent.failure.known) {
            ct_report_headline(&report, &text);
        } else {
            say_told(run);
            ct_report_stopping(&report, &text);
        }
        say(run->output, &text);
    }
    ct_free(table);
    ct_buf_fini(&text);
}

/* Copies the error file of the root cause to the program that launched ctrun, as torchrun does. */
static void pass_on_error_file(struct ct_agent_run *run)
{
    const char *own = ct_environ_get(run->job->env, "TORCHELASTIC_ERROR_FILE");
    struct ct_err err = {0};
    char *path = ct_logdir_path(run->job->logdir, run->agent.generation,
                                run->agent.failure.local_rank, "error.json");
    if (path != NULL && own != NULL && own[0] != '\0' &&
        ct_error_file_copy(path, own, ct_worker_end_python_code(&run->agent.failure.end), &err) !=
            0) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", err.text);
    }
    ct_free(path);
}

static void read_error_file(struct ct_agent_run *run, int local_rank)
{
    struct ct_err err = {0};
    char *path = ct_logdir_path(run->job->logdir, run->agent.generation, local_rank, "error.json");
    if (path != NULL && path[0] != '\0') {
        int rc = ct_error_file_read(path, &run->report.error_file, &err);
        if (rc == 0) {
            run->outcome.keep_files = true;
        } else if (rc != CT_ENOENT) {
            ct_log(&run->log, CT_LOG_WARNING, "%s", err.text);
        }
    }
    ct_free(path);
}

/* Copies a text for the other machines. Of a long one it takes the end, which says most. Returns
 * NULL for an empty text, or without memory. */
static char *shorten(const char *text)
{
    size_t len = text != NULL ? strlen(text) : 0;
    if (len == 0) {
        return NULL;
    }
    return ct_strdup(len < CT_FAILURE_TEXT_MAX ? text : text + len - CT_FAILURE_TEXT_MAX + 1);
}

static bool is_full(const char *folder)
{
    struct statvfs room;
    return statvfs(folder, &room) == 0 && room.f_blocks > 0 && room.f_bavail == 0;
}

/* Returns NULL if there is no advice, or no memory. */
static char *make_advice(const struct ct_agent_run *run, const char *memory, bool logged,
                         struct ct_buf *text)
{
    const struct ct_failure *failure = &run->report.failure;
    char *const *words = run->job->options->command;
    const struct ct_cause_facts facts = {
        .end = run->agent.failure.end,
        .message = failure->message,
        .traceback = failure->traceback,
        .tail = failure->tail,
        .memory = memory,
        .shm_is_full = is_full("/dev/shm"),
        .logged = logged,
        .own_python = run->job->command->python,
        .arguments = words != NULL && words[0] != NULL ? words + 1 : NULL,
    };
    const char *advice = ct_cause_advice(&facts, text) == 0 ? ct_buf_cstr(text) : NULL;
    return advice != NULL ? ct_strdup(advice) : NULL;
}

static uint64_t lines_in(const struct ct_buf *text)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < text->len; i++) {
        lines += ct_buf_bytes(text)[i] == '\n';
    }
    return lines;
}

/* Is the output of this worker also written to files? */
static bool is_logged(const struct ct_agent_run *run, int local_rank)
{
    const struct ct_job_spec *job = run->job;
    return job->logdir->base != NULL &&
           (ct_redirects_of(&job->resolved->redirects, local_rank) != 0 ||
            ct_redirects_of(&job->resolved->tee, local_rank) != 0);
}

/* How many stacks are kept of a hang in which no worker stands out. More would tell nothing new. */
#define STACKS_KEPT 8

/* Do two workers have the same stack? */
static bool same_stack(const struct ct_worker *a, const struct ct_worker *b)
{
    return a->hang.stack != NULL && b->hang.stack != NULL &&
           strcmp(a->hang.stack, b->hang.stack) == 0;
}

struct alike {
    const struct ct_agent_workers *workers;
    int like;
};

static bool is_alike(const void *set, int local_rank)
{
    const struct alike *alike = set;
    return same_stack(&alike->workers->list[local_rank], &alike->workers->list[alike->like]);
}

/* Is it the first worker with its stack? */
static bool is_first_of_stack(const struct ct_agent_workers *workers, int local_rank)
{
    for (int i = 0; i < local_rank; i++) {
        if (same_stack(&workers->list[i], &workers->list[local_rank])) {
            return false;
        }
    }
    return workers->list[local_rank].hang.stack != NULL;
}

/* Appends the stacks of all workers, for a hang in which none stands out: each stack once, below
 * the ranks that have it. If they are many or long, each is cut at its end, because the main thread
 * comes first. */
static void add_stacks(const struct ct_agent_run *run, struct ct_buf *out)
{
    const struct ct_agent_workers *workers = &run->workers;
    int stacks = 0, shown = 0;
    for (int i = 0; i < workers->count; i++) {
        stacks += is_first_of_stack(workers, i);
    }
    int most = stacks < STACKS_KEPT ? stacks : STACKS_KEPT;
    size_t share = (CT_FAILURE_TEXT_MAX - 1) / (size_t)(most > 0 ? most : 1);
    for (int i = 0; i < workers->count && shown < most; i++) {
        if (!is_first_of_stack(workers, i)) {
            continue;
        }
        const struct alike alike = {workers, i};
        const struct ct_ranges ranges = {.has = is_alike,
                                         .set = &alike,
                                         .count = workers->count,
                                         .first = run->worker_env.first_rank};
        size_t before = out->len;
        (void)ct_ranges_add_ranks(&ranges, out);
        ct_buf_addf(out, ":\n");
        size_t used = out->len - before, room = share > used + 1 ? share - used - 1 : 0;
        const char *stack = workers->list[i].hang.stack;
        size_t len = strlen(stack);
        ct_buf_addf(out, "%.*s%s", (int)(len < room ? len : room), stack, len < room ? "" : "\n");
        shown++;
    }
}

/* Returns the traceback for the report: the stacks of all workers if the job hung without a
 * suspect; else that of the error file; else the stack of the failed worker. NULL: there is none.
 * `text` holds the stacks of all workers. */
static const char *find_traceback(const struct ct_agent_run *run, int failed, struct ct_buf *text)
{
    if (run->agent.failure.end.kind == CT_END_ALL_HUNG) {
        add_stacks(run, text);
        return text->len > 0 ? ct_buf_cstr(text) : NULL;
    }
    return run->report.error_file.traceback != NULL ? run->report.error_file.traceback
                                                    : run->workers.list[failed].hang.stack;
}

void ct_agent_report_collect(struct ct_agent_run *run)
{
    int failed = run->agent.failure.local_rank;
    struct ct_buf plain = CT_BUF_INIT;
    struct ct_failure *failure = &run->report.failure;
    const struct ct_output_stream *err = run->workers.list[failed].err;
    ct_error_file_fini(&run->report.error_file);
    ct_buf_reset(&run->report.tail);
    ct_free(run->report.kernel_stack);
    run->report.kernel_stack = run->workers.list[failed].hang.kernel_stack;
    run->workers.list[failed].hang.kernel_stack = NULL;
    run->report.tail_is_last = false;
    read_error_file(run, failed);
    if (err != NULL && ct_output_stream_tail(err, CT_REPORT_INDENT, &run->report.tail) == 0 &&
        ct_output_stream_tail(err, "", &plain) == 0) {
        failure->tail = shorten(ct_buf_cstr(&plain));
        run->report.tail_is_last = ct_output_stream_is_last(err, lines_in(&plain));
    }
    if (run->agent.failure.end.kind == CT_END_UNFIT) {
        failure->tail = shorten(run->check.tail);
        (void)ct_report_quote(run->check.tail, &run->report.tail);
    }
    failure->message = shorten(run->report.error_file.message);
    ct_buf_reset(&plain);
    failure->traceback = shorten(find_traceback(run, failed, &plain));
    ct_buf_reset(&plain);
    failure->advice = run->agent.failure.end.kind == CT_END_UNFIT && run->check.advice[0] != '\0'
                          ? ct_strdup(run->check.advice)
                          : make_advice(run, run->workers.list[failed].report.memory,
                                        is_logged(run, failed), &plain);
    ct_buf_fini(&plain);
}

static void tell_failure_here(struct ct_agent_run *run)
{
    const struct ct_job_spec *job = run->job;
    int failed = run->agent.failure.local_rank;
    struct ct_buf text = CT_BUF_INIT;
    struct ct_report report;
    struct ct_report_worker *table = ct_calloc((size_t)job->resolved->workers, sizeof(*table));
    char *folder = NULL;
    if (table == NULL) {
        return;
    }
    fill_report(run, table, &report);
    report.message = run->report.error_file.message;
    report.traceback = run->report.error_file.traceback;
    const char *tail = ct_buf_cstr(&run->report.tail);
    report.tail = tail != NULL ? tail : "";
    report.advice = run->report.failure.advice;
    report.tail_is_seen = ct_worker_err_is_seen(job, failed) || run->report.tail_is_last;
    report.tail_is_shown = ct_worker_err_is_shown(job, failed);
    if (is_logged(run, failed)) {
        folder = ct_logdir_path(job->logdir, run->agent.generation, failed, "");
        report.log_folder = folder;
    }
    if (run->report.error_file.message != NULL && !run->agent.will_restart) {
        pass_on_error_file(run);
    }
    /* A rank that failed after another one has already been named in its headline. If the job is
     * over, its story follows on this screen, and this report would repeat much of it. */
    bool later = !run->agent.will_restart && (told_by_another(run) || follows_another(run));
    if ((ct_agent_report_speaks(run->job->resolved) || is_culprit(run)) && !later &&
        ct_report_failure(&report, &text) == 0) {
        say(run->output, &text);
    }
    ct_free(folder);
    ct_free(table);
    ct_buf_fini(&text);
}

/* Says which workers had to be killed. After a second Ctrl-C the user expects that. */
static void say_killed(struct ct_agent_run *run)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_report report;
    struct ct_report_worker *table = ct_calloc((size_t)run->job->resolved->workers, sizeof(*table));
    if (table != NULL && !run->agent.impatient) {
        fill_report(run, table, &report);
        ct_report_killed(&report, &text);
        say(run->output, &text);
    }
    ct_free(table);
    ct_buf_fini(&text);
}

void ct_agent_report_generation(struct ct_agent_run *run)
{
    if (run->agent.failure.known) {
        tell_failure_here(run);
        return;
    }
    say_killed(run);
    if (run->agent.will_restart && ct_agent_report_speaks(run->job->resolved) &&
        !told_by_another(run)) {
        ct_agent_report_say(run->output,
                            "all workers here have stopped; the next generation forms");
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Would an option let this job outlive its store? See ct_resolve(). */
static bool could_outlive(const struct ct_agent_run *run)
{
    const struct ct_options *options = run->job->options;
    const struct ct_resolved *resolved = run->job->resolved;
    bool outlives = resolved->failover && run->job->token != NULL;
    return resolved->shared && !outlives && resolved->mode != CT_MODE_SHIM &&
           !options->agent_stdin && options->rdzv_conf.failover != 0;
}

/* The first generation whose failures can have ended the job. When the store is lost, a failure
 * that the job had outlived, or was about to outlive, is not why it ends. */
static int failures_since(const struct ct_agent *agent)
{
    return !agent->lost || agent->over ? 0 : agent->generation + agent->overcome;
}

static struct ct_job_end end_of(const struct ct_agent_run *run)
{
    const struct ct_options *options = run->job->options;
    const struct ct_resolved *resolved = run->job->resolved;
    struct ct_warm_facts warm = {0};
    ct_agent_warm_facts(run, &warm);
    if (warm.making == CT_WARM_MAKING_LATER && run->warm.at_stop != CT_WARM_MAKING_UNKNOWN) {
        warm.making = run->warm.at_stop; /* there is no later */
    }
    return (struct ct_job_end){
        .run_id = run->job->run_id,
        .host = run->job->machine->host,
        .exit_code = run->outcome.exit_code,
        .max_restarts = options->max_restarts,
        .signo = run->agent.signo,
        .fixed_nodes = resolved->min_nodes == resolved->max_nodes && options->spares == 0,
        .since = failures_since(&run->agent),
        .store_lost = run->agent.lost && run->agent.generation >= 0 && could_outlive(run),
        .preflight = run->check.result.report,
        .warm = warm,
        .warm_in_all = run->warm.taken_in_all,
    };
}

void ct_agent_report_job(struct ct_agent_run *run)
{
    const struct ct_job_end end = end_of(run);
    const char *path = run->job->options->report;
    struct ct_buf text = CT_BUF_INIT;
    struct ct_err err = {0};
    if (run->agent.lost && run->report.story.why[0] == '\0') {
        memcpy(run->report.story.why, run->report.stop_why, sizeof(run->report.story.why));
    }
    /* Each machine with a screen of its own tells the story, once for all its ranks. On a shared
     * screen a node that was in no world decides by the rank that its options give it. */
    bool told_elsewhere = !(ct_agent_report_speaks(run->job->resolved) || is_culprit(run));
    if (run->job->resolved->one_screen) {
        told_elsewhere = run->report.story.several_nodes ? told_by_another(run)
                                                         : run->job->resolved->node_rank > 0;
    }
    if (!told_elsewhere && end.exit_code == 0 && end.signo == 0 && run->report.story.restarts > 0) {
        ct_agent_report_say(run->output, "the job succeeded after %d restart%s",
                            run->report.story.restarts, run->report.story.restarts == 1 ? "" : "s");
    }
    /* A job of one node has told everything already, unless it waited for other nodes. */
    bool to_tell =
        run->report.story.several_nodes || (run->report.story.worlds == 0 && run->agent.over);
    if (to_tell && !told_elsewhere && ct_job_story_text(&run->report.story, &end, &text) == 0) {
        say(run->output, &text);
    }
    /* Of a job of one node only why no restart followed is still to be told. */
    if (!to_tell && end.exit_code != 0 && end.signo == 0 && run->agent.over &&
        run->report.story.why[0] != '\0') {
        ct_agent_report_say(run->output, "the job ends: %s", run->report.story.why);
    }
    if (path != NULL && ct_report_file_write(path, &run->report.story, &end, &err) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", err.text);
    }
    ct_buf_fini(&text);
}

void ct_agent_report_end(struct ct_agent_run *run)
{
    const struct ct_job_end end = end_of(run);
    const struct ct_failure *here = run->agent.failure.known ? &run->report.failure : NULL;
    struct ct_buf text = CT_BUF_INIT;
    if (run->store.server != NULL &&
        ct_job_story_verdict(&run->report.story, &end, here, &text) == 0) {
        ct_server_tell_end(run->store.server,
                           &(struct ct_server_end){.run_id = end.run_id,
                                                   .outcome = ct_job_story_outcome(&end),
                                                   .exit_code = end.exit_code,
                                                   .text = ct_buf_cstr(&text)});
    }
    ct_buf_fini(&text);
}

/* ---- the status ----------------------------------------------------------------------------- */

void ct_agent_report_rows(const struct ct_agent_run *run, struct ct_msg *msg)
{
    const struct ct_job_spec *job = run->job;
    struct ct_report_worker *table = ct_calloc((size_t)job->resolved->workers, sizeof(*table));
    msg->rows = ct_calloc((size_t)job->resolved->workers, sizeof(*msg->rows));
    for (int i = 0; table != NULL && i < job->resolved->workers; i++) {
        table[i] = run->workers.list[i].report;
    }
    msg->has_rows = table != NULL && msg->rows != NULL;
    if (msg->has_rows) {
        const struct ct_job_facts facts = {
            .agent = &run->agent,
            .worker_env = &run->worker_env,
            .workers = table,
            .progress = &run->workers.progress,
            .now_ns = ct_clock_now(NULL),
        };
        ct_job_status_rows(&facts, msg->rows);
        msg->num_rows = run->agent.workers;
        for (int i = 0; i < msg->num_rows; i++) {
            bool alive = run->agent.states[i] == CT_WORKER_ALIVE;
            msg->rows[i].rss_mib = alive ? run->workers.list[i].rss_mib : 0;
        }
    }
    ct_free(table);
}
