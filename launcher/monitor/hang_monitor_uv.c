/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the sampler finds no hang.
 *
 * Other paths: the sampler finds a hang, and the verdict is printed. Then the workers are asked
 * where they stand, for at most --hang-stacks seconds, which may name a suspect if the verdict
 * named nobody. With --on-hang restart or abort the suspect and its process group get SIGKILL,
 * because a process that hangs may react to no other signal. The other workers are stopped in the
 * usual two phases.
 *
 * When the machines of a job find the suspect together and it runs here, their verdict is treated
 * like one of the sampler. When it runs elsewhere, it is only printed. When they find none, each
 * machine asks its workers and tells the membership, whose second verdict is acted upon.
 *
 * As long as the hang lasts, the beats tell the membership of it, for the status. When a worker has
 * made progress again and none has failed within two seconds, one line says that it is over. The
 * machine that has the suspect, or that acts where nobody is named, tells the membership; every
 * machine that has printed the verdict prints the line.
 *
 * When the membership gives its verdict again, hang_standing.h says what is to be done.
 *
 * A slow rank is told of and explained in the same way, and nobody is killed.
 *
 * Failure modes: if a rank has made progress meanwhile, or the workers have been told to end,
 * nobody is killed. A suspect in uninterruptible sleep does not end. The job goes on hanging, and
 * the verdict stays on the screen.
 *
 * Who frees: the sampler frees itself in its close callback.
 */
#include "launcher/monitor/hang_monitor_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/text.h"
#include "launcher/setup/machine.h"
#include "rendezvous/control/control.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* A rank turns in an endless loop if so many looks at its stack find the same frames. */
#define LOOKS 3
#define LOOK_EVERY_NS (2 * CT_NS_PER_S)

/* Writing the stacks of a hundred threads takes less. */
#define ABORT_MS 1000

/* When the membership waits for where the workers stand (rendezvous/members/members_hang.c). */
#define STAND_MS 6000

static pid_t pid_of(void *data, int local_rank)
{
    const struct ct_hang_monitor *monitor = data;
    const struct ct_worker *worker = &monitor->workers[local_rank];
    bool alive =
        !*monitor->stopping && !worker->kept && worker->proc != NULL && ct_proc_alive(worker->proc);
    return alive ? ct_proc_pid(worker->proc) : 0;
}

static void on_kill_due(uv_timer_t *timer)
{
    struct ct_hang_monitor *monitor = timer->data;
    if (pid_of(monitor, monitor->aborted_rank) != 0) {
        ct_proc_signal_group(monitor->workers[monitor->aborted_rank].proc, SIGKILL);
    }
}

/* Lets a Python program write its stack before it is killed. faulthandler(3) of Python does that at
 * SIGABRT, also while another thread holds Python's lock. */
static void abort_worker(struct ct_hang_monitor *monitor, int local_rank)
{
    const struct ct_worker *worker = &monitor->workers[local_rank];
    /* Nobody asked for a core dump, which may be as large as the memory of the program. */
    const struct rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
    (void)prlimit(ct_proc_pid(worker->proc), RLIMIT_CORE, &no_core, NULL);
    ct_proc_signal_leader(worker->proc, SIGABRT);
    ct_proc_signal_leader(worker->proc, SIGCONT); /* it may be stopped */
    monitor->aborted_rank = local_rank;           /* the next verdict may name another one */
    (void)uv_timer_start(&monitor->kill_timer, on_kill_due, ABORT_MS, 0);
}

/* ---- what stands ----------------------------------------------------------------------------- */

static int64_t unix_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / CT_NS_PER_MS;
}

static int64_t stood_still_ms(const struct ct_hang_standing *standing)
{
    return ct_hang_standing_ms(standing, ct_clock_now(NULL));
}

/* Says that the hang is over, which has lasted for so long. */
static void end_standing(struct ct_hang_monitor *monitor, int64_t lasted_ms, const char *how)
{
    struct ct_hang_standing *standing = &monitor->standing;
    struct ct_hang_record *record = ct_hang_log_last(monitor->log);
    char line[160], who[32] = "the job";
    if (standing->report.rank >= 0) {
        (void)snprintf(who, sizeof(who), "rank %d", standing->report.rank);
    }
    int len =
        snprintf(line, sizeof(line), CT_REPORT_PREFIX "the hang of %s is over: %s after %.1f s\n",
                 who, how, (double)lasted_ms / 1000);
    if (!standing->acted) { /* else its peers only notice that it has gone */
        ct_output_say(monitor->output, CT_OUTPUT_ERR, line, (size_t)len);
    }
    record->for_ms = lasted_ms;
    record->over = !standing->acted;
    standing->report.stands = false;
    monitor->loop.told = false; /* the same loop may follow once more */
    monitor->on_report(monitor->data);
}

/* Workers have made progress and nobody has failed since. */
static void end_by_progress(struct ct_hang_monitor *monitor)
{
    end_standing(monitor, stood_still_ms(&monitor->standing),
                 "the workers have made progress again");
}

/* What comes now is about another hang, if there was progress since the one that stands. */
static void settle(struct ct_hang_monitor *monitor)
{
    const struct ct_hang_standing *standing = &monitor->standing;
    if (standing->report.stands && standing->went_on_ns != 0 && !standing->failed) {
        end_by_progress(monitor);
    }
}

/* From here on the hang has a record: the last one of the log, until another hang stands. */
static void set_standing(struct ct_hang_monitor *monitor, const struct ct_hang_standing *standing,
                         const char *host)
{
    const struct ct_hang_report *report = &standing->report;
    settle(monitor);
    const struct ct_hang_standing old = monitor->standing;
    monitor->standing = *standing;
    if (old.report.stands) { /* it was told of before, only a rank is named now */
        monitor->standing.since_ns = old.since_ns;
        monitor->standing.report.still_ms = old.report.still_ms;
    } else {
        monitor->standing.since_ns = ct_clock_now(NULL);
        ct_hang_log_add(monitor->log, &(struct ct_hang_record){.generation = report->generation,
                                                               .time_ms = unix_ms(),
                                                               .for_ms = report->still_ms});
    }
    struct ct_hang_record *record = ct_hang_log_last(monitor->log);
    record->rank = report->rank;
    (void)snprintf(record->why, sizeof(record->why), "%s", report->why);
    (void)snprintf(record->host, sizeof(record->host), "%s", report->rank >= 0 ? host : "");
    monitor->on_report(monitor->data);
}

/* A verdict of this machine: it tells the membership. */
static void stand_here(struct ct_hang_monitor *monitor, const struct ct_hang_verdict *verdict,
                       const char *why)
{
    bool is_named = verdict->reason != CT_HANG_ALL;
    struct ct_hang_standing standing = {
        .report = {.stands = true,
                   .generation = monitor->worker_env->generation,
                   .rank = is_named ? monitor->worker_env->first_rank + verdict->local_rank : -1,
                   .still_ms = verdict->still_ns / CT_NS_PER_MS},
        .verdict = *verdict,
        .is_here = true,
    };
    (void)snprintf(standing.report.why, sizeof(standing.report.why), "%s", why);
    set_standing(monitor, &standing, monitor->job->machine->host);
}

/* A verdict of which another machine tells the membership. */
static void stand_elsewhere(struct ct_hang_monitor *monitor, const struct ct_hang_vote *verdict,
                            const char *host, const char *why)
{
    struct ct_hang_standing standing = {
        .report = {.stands = true,
                   .generation = verdict->generation,
                   .rank = verdict->kind == CT_HANG_VOTE_ALL ? -1 : verdict->rank,
                   .still_ms = verdict->still_ms},
        .verdict = {.reason = CT_HANG_ALL},
    };
    (void)snprintf(standing.report.why, sizeof(standing.report.why), "%s", why);
    set_standing(monitor, &standing, host);
}

/* Notes why the job hangs where no rank stands out. */
static void set_why(struct ct_hang_monitor *monitor, const char *why)
{
    struct ct_hang_record *record = ct_hang_log_last(monitor->log);
    struct ct_hang_report *report = &monitor->standing.report;
    (void)snprintf(report->why, sizeof(report->why), "%s", why);
    (void)snprintf(record->why, sizeof(record->why), "%s", why);
    monitor->on_report(monitor->data);
}

static void on_sampled(void *data)
{
    struct ct_hang_monitor *monitor = data;
    struct ct_hang_standing *standing = &monitor->standing;
    if (!standing->report.stands || *monitor->stopping) {
        return;
    }
    int64_t lasted_ms = stood_still_ms(standing);
    bool is_over = ct_hang_sampler_is_over(monitor->sampler, &standing->verdict);
    bool has_ended = is_over && !standing->failed && standing->verdict.reason != CT_HANG_ALL &&
                     pid_of(monitor, standing->verdict.local_rank) == 0;
    if (has_ended) {
        end_standing(monitor, lasted_ms, "its process has ended");
    } else if (ct_hang_standing_take_sample(standing, is_over, ct_clock_now(NULL))) {
        end_by_progress(monitor);
    } else {
        ct_hang_log_last(monitor->log)->for_ms = lasted_ms;
    }
}

void ct_hang_monitor_take_end(struct ct_hang_monitor *monitor, bool success)
{
    if (ct_hang_standing_take_end(&monitor->standing, success)) {
        end_by_progress(monitor);
    } else if (monitor->standing.report.stands && monitor->standing.failed) {
        struct ct_hang_record *record = ct_hang_log_last(monitor->log);
        record->for_ms = stood_still_ms(&monitor->standing);
        record->failed = true;
    }
}

void ct_hang_monitor_report(const struct ct_hang_monitor *monitor, struct ct_hang_report *out)
{
    *out = monitor->standing.report;
    out->stands = out->stands && monitor->standing.is_here;
    out->still_ms = stood_still_ms(&monitor->standing);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Where no rank stands out, no other line says so. */
static void say_nobody(struct ct_hang_monitor *monitor)
{
    static const char line[] = CT_REPORT_PREFIX "no rank stands out\n";
    if (!monitor->standing.says_nobody) {
        ct_output_say(monitor->output, CT_OUTPUT_ERR, line, sizeof(line) - 1);
    }
    monitor->standing.says_nobody = true;
}

/* Says where the suspect is in the kernel, below the lines that tell a user more. */
static void say_kernel_stack(struct ct_hang_monitor *monitor)
{
    struct ct_buf text = CT_BUF_INIT;
    if (monitor->kernel_stack != NULL &&
        ct_buf_printf(&text, CT_REPORT_PREFIX "stack of rank %d in the kernel:\n%s",
                      monitor->worker_env->first_rank + monitor->kernel_rank,
                      monitor->kernel_stack) == 0) {
        ct_output_say(monitor->output, CT_OUTPUT_ERR, ct_buf_cstr(&text), text.len);
    }
    ct_buf_fini(&text);
    ct_free(monitor->kernel_stack);
    monitor->kernel_stack = NULL;
}

/* Keeps what a worker answered for act(). */
static void keep_answer(struct ct_worker *worker, const struct ct_probe_answer *answer)
{
    ct_worker_forget_stack(worker);
    ct_worker_keep_stack(worker, &answer->stack);
    worker->hang.may_dump = answer->python && answer->source == CT_PROBE_NOTHING;
}

/* Of the worker that is named, or of all (-1) if none is, for the report. */
static void keep_answers(struct ct_hang_monitor *monitor, const struct ct_probe *probe, int named)
{
    for (int i = 0; i < probe->count; i++) {
        if (named < 0 || i == named) {
            keep_answer(&monitor->workers[i], &probe->answers[i]);
        }
    }
}

/* Returns the worker for which a verdict stands: the suspect, or if nobody is named, or it has
 * ended, the first one that lives. */
static int choose_worker(struct ct_hang_monitor *monitor, int local_rank)
{
    for (int i = 0; pid_of(monitor, local_rank) == 0 && i < monitor->job->resolved->workers; i++) {
        if (pid_of(monitor, i) != 0) {
            return i;
        }
    }
    return local_rank;
}

/* Kills the suspect of the verdict if the user wants that. */
static void act(struct ct_hang_monitor *monitor)
{
    struct ct_hang_verdict *verdict = &monitor->verdict;
    struct ct_hang_record *record = ct_hang_log_last(monitor->log);
    if (verdict->reason == CT_HANG_ALL) {
        verdict->local_rank = choose_worker(monitor, verdict->local_rank);
    }
    struct ct_worker *worker = &monitor->workers[verdict->local_rank];
    int64_t seconds = verdict->still_ns / CT_NS_PER_S;
    if (monitor->job->options->on_hang == CT_ON_HANG_REPORT ||
        pid_of(monitor, verdict->local_rank) == 0) {
        return;
    }
    worker->ended_for = (struct ct_worker_end){
        .kind = verdict->reason == CT_HANG_ALL ? CT_END_ALL_HUNG : CT_END_HUNG,
        .value = seconds < INT_MAX ? (int)seconds : INT_MAX,
        .final = monitor->job->options->on_hang == CT_ON_HANG_ABORT,
        .stopped = verdict->reason == CT_HANG_STOPPED,
    };
    monitor->standing.acted = monitor->has_killed = true;
    record->for_ms = stood_still_ms(&monitor->standing);
    record->killed = true;
    if (worker->hang.may_dump) {
        /* What it writes now tells a user more, so that comes first. */
        worker->hang.kernel_stack = monitor->kernel_stack;
        monitor->kernel_stack = NULL;
        abort_worker(monitor, verdict->local_rank);
    } else {
        ct_proc_signal_group(worker->proc, SIGKILL);
    }
}

/* Tells the membership where the workers stand, which decides what follows. */
static void stand(struct ct_hang_monitor *monitor, const struct ct_probe *probe)
{
    struct ct_stands stands;
    keep_answers(monitor, probe, -1);
    bool known = ct_explain_stands(probe, &stands) == 0;
    monitor->on_stands(monitor->data, known ? &stands : NULL);
    ct_stands_fini(&stands);
}

/* Notes for the report of the job where the suspect stands, and in which collectives ranks wait. */
static void keep_places(struct ct_hang_monitor *monitor, const struct ct_probe *probe)
{
    struct ct_hang_record *record = ct_hang_log_last(monitor->log);
    const struct ct_hang_verdict *verdict = &monitor->verdict;
    struct ct_buf text = CT_BUF_INIT;
    if (verdict->reason != CT_HANG_ALL &&
        ct_stack_print_where(&probe->answers[verdict->local_rank].stack, &text) == 0 &&
        text.len > 0) {
        (void)snprintf(record->at, sizeof(record->at), "%s", ct_buf_cstr(&text));
    }
    ct_buf_reset(&text);
    if (ct_explain_operations(probe, &text) == 0 && text.len > 0) {
        (void)snprintf(record->operation, sizeof(record->operation), "%s", ct_buf_cstr(&text));
    }
    ct_buf_fini(&text);
}

static void on_explained(void *data, const struct ct_probe *probe)
{
    struct ct_hang_monitor *monitor = data;
    struct ct_hang_verdict *verdict = &monitor->verdict;
    struct ct_buf text = CT_BUF_INIT, why = CT_BUF_INIT;
    int named = verdict->reason == CT_HANG_ALL ? -1 : verdict->local_rank;
    struct ct_explain explain = ct_stack_asker_explain(monitor->asker, probe, named);
    monitor->task = NULL;
    /* A rank that is only slow will come to each collective. */
    explain.whole_job = explain.whole_job && verdict->reason != CT_HANG_NONE;
    if (*monitor->stopping) {
        (void)ct_hang_sampler_resume(monitor->sampler);
        return;
    }
    int suspect = ct_explain_suspect(&explain, &why);
    /* The membership asks once more, of a hang that was told. */
    bool again = monitor->duty == CT_HANG_STAND && monitor->standing.explained;
    if (named < 0 && suspect < 0 && monitor->duty == CT_HANG_ACT) {
        say_nobody(monitor);
    }
    if (!again && ct_explain_print(&explain, CT_REPORT_PREFIX, &text) == 0 && text.len > 0) {
        ct_output_say(monitor->output, CT_OUTPUT_ERR, (const char *)ct_buf_bytes(&text), text.len);
    }
    ct_buf_fini(&text);
    /* A rank that others wait for in vain may have ended. */
    if (named < 0 && suspect >= 0 && pid_of(monitor, suspect) != 0) {
        verdict->reason = CT_HANG_BUSY;
        verdict->local_rank = suspect;
        const char *reason = ct_buf_cstr(&why);
        stand_here(monitor, verdict, reason != NULL ? reason : "");
        ct_hang_sampler_name(monitor->sampler, verdict);
    } else if (named < 0 && suspect < 0 && why.len > 0) {
        set_why(monitor, ct_buf_cstr(&why));
    }
    ct_buf_fini(&why);
    if (verdict->reason != CT_HANG_NONE) {
        keep_places(monitor, probe);
        monitor->standing.explained = true;
    }
    bool holds = ct_hang_sampler_resume(monitor->sampler);
    if (monitor->duty == CT_HANG_STAND) {
        stand(monitor, probe);
    } else if (monitor->duty == CT_HANG_ACT && holds) {
        keep_answers(monitor, probe, verdict->reason == CT_HANG_ALL ? -1 : verdict->local_rank);
        act(monitor);
    }
    say_kernel_stack(monitor);
}

/* Gives up asking the workers where they stand. */
static void stop_asking(struct ct_hang_monitor *monitor)
{
    if (monitor->task != NULL) {
        ct_probe_task_stop(monitor->task);
        monitor->task = NULL;
        (void)ct_hang_sampler_resume(monitor->sampler);
    }
    ct_free(monitor->kernel_stack);
    monitor->kernel_stack = NULL;
}

/* For how long the workers may be asked. The membership waits for an answer for 8 s. */
static int64_t budget_of(const struct ct_hang_monitor *monitor)
{
    int64_t ms = monitor->job->options->hang_stacks_ms;
    return monitor->duty == CT_HANG_STAND && ms > STAND_MS ? STAND_MS : ms;
}

/* Begins to ask where the workers stand, in place of a question that is open. `suspect` is a local
 * rank, -1 = nobody is named. Returns false if nobody can be asked. */
static bool ask(struct ct_hang_monitor *monitor, int suspect)
{
    stop_asking(monitor);
    const struct ct_stack_question question = {
        .only = -1,
        .suspect = suspect,
        .budget_ms = budget_of(monitor),
    };
    if (question.budget_ms == 0 || ct_stack_asker_ask(monitor->asker, &question, on_explained,
                                                      monitor, &monitor->task, NULL) != 0) {
        return false;
    }
    ct_hang_sampler_pause(monitor->sampler);
    return true;
}

static void on_verdict(void *data, const struct ct_hang_verdict *verdict,
                       const struct ct_hang_words *words)
{
    struct ct_hang_monitor *monitor = data;
    if (monitor->has_killed) {
        return; /* the others hang until the death of the suspect is noticed */
    }
    ct_output_say(monitor->output, CT_OUTPUT_ERR, words->text, strlen(words->text));
    stand_here(monitor, verdict, words->why);
    monitor->verdict = *verdict;
    bool all = verdict->reason == CT_HANG_ALL;
    monitor->duty = monitor->awaits && all ? CT_HANG_STAND : CT_HANG_ACT;
    bool asks = ask(monitor, all ? -1 : verdict->local_rank);
    monitor->kernel_stack = words->kernel_stack[0] != '\0' ? ct_strdup(words->kernel_stack) : NULL;
    monitor->kernel_rank = verdict->local_rank;
    if (asks) {
        return;
    }
    if (monitor->duty == CT_HANG_STAND) {
        monitor->on_stands(monitor->data, NULL);
    } else {
        if (all) {
            say_nobody(monitor);
        }
        act(monitor);
    }
    say_kernel_stack(monitor);
}

/* ---- endless loops --------------------------------------------------------------------------- */

/* Takes a look at the stack of the rank that alone uses the CPU. */
static void on_looked(void *data, const struct ct_probe *probe)
{
    struct ct_hang_monitor *monitor = data;
    struct ct_hang_loop *loop = &monitor->loop;
    struct ct_buf text = CT_BUF_INIT;
    const struct ct_stack *stack = &probe->answers[loop->local_rank].stack;
    loop->task = NULL;
    /* Other threads may come and go; one of PyTorch's worker server waits for each question. */
    const char *seen = ct_stack_print_main(stack, "", &text) == 0 ? ct_buf_cstr(&text) : NULL;
    if (seen == NULL || text.len == 0) {
        loop->seen = 0;
    } else if (loop->stack != NULL && strcmp(loop->stack, seen) == 0) {
        loop->seen++;
    } else {
        ct_free(loop->stack);
        loop->stack = ct_strdup(seen);
        loop->seen = 1;
        loop->told = false;
    }
    ct_buf_fini(&text);
    if (loop->seen >= LOOKS && !loop->told && !*monitor->stopping) {
        loop->told = true;
        ct_hang_sampler_take_loop(monitor->sampler, loop->local_rank);
    }
}

/* A rank that alone uses the CPU may compute or turn in an endless loop. It is the latter if it is
 * at one place of its program each time. */
static void on_busy_alone(void *data, int local_rank)
{
    struct ct_hang_monitor *monitor = data;
    struct ct_hang_loop *loop = &monitor->loop;
    int64_t now_ns = ct_clock_now(NULL);
    if (loop->task != NULL || now_ns < loop->next_ns ||
        monitor->job->options->hang_stacks_ms == 0) {
        return;
    }
    bool is_new = loop->local_rank != local_rank || now_ns - loop->next_ns > LOOK_EVERY_NS;
    if (is_new) {
        loop->seen = 0;
    }
    loop->local_rank = local_rank;
    loop->next_ns = now_ns + LOOK_EVERY_NS;
    const struct ct_stack_question question = {
        .only = local_rank,
        .suspect = local_rank,
        .budget_ms = monitor->job->options->hang_stacks_ms,
    };
    if (ct_stack_asker_ask(monitor->asker, &question, on_looked, monitor, &loop->task, NULL) != 0) {
        loop->seen = 0;
    }
}

static void stop_looking(struct ct_hang_loop *loop)
{
    ct_probe_task_stop(loop->task);
    ct_free(loop->stack);
    *loop = (struct ct_hang_loop){.task = NULL};
}

/* ---- slow ranks ------------------------------------------------------------------------------ */

static void on_slow(void *data, const struct ct_slow_verdict *verdict)
{
    struct ct_hang_monitor *monitor = data;
    char line[256];
    int len =
        snprintf(line, sizeof(line),
                 CT_REPORT_PREFIX
                 "rank %d is slow: it worked for %d %% of the last %d s, and the other workers "
                 "of this machine for %d %%, who wait for it otherwise\n",
                 monitor->worker_env->first_rank + verdict->local_rank, verdict->percent,
                 (int)(CT_SLOW_WINDOWS * CT_SLOW_WINDOW_NS / CT_NS_PER_S), verdict->others_percent);
    if (monitor->task != NULL || *monitor->stopping) {
        return; /* a verdict is being explained, which matters more */
    }
    ct_output_say(monitor->output, CT_OUTPUT_ERR, line, (size_t)len);
    monitor->verdict = (struct ct_hang_verdict){.local_rank = verdict->local_rank};
    monitor->duty = CT_HANG_TELL;
    (void)ask(monitor, verdict->local_rank);
}

int ct_hang_monitor_open(struct ct_hang_monitor *monitor, uv_loop_t *loop, struct ct_err *err)
{
    const struct ct_options *own = monitor->job->options;
    if (own->hang_timeout_ns < 0 && own->slow_factor <= 0) {
        return 0;
    }
    const struct ct_hang_sampler_options options = {
        .workers = monitor->job->resolved->workers,
        .first_rank = monitor->worker_env->first_rank,
        .whole_job = monitor->worker_env->world_size == monitor->job->resolved->workers,
        .timeout_ns = own->hang_timeout_ns,
        .slow_factor = own->slow_factor,
        .progress = monitor->progress,
        .prefix = CT_REPORT_PREFIX,
        .pid_of = pid_of,
        .on_verdict = on_verdict,
        .on_sampled = on_sampled,
        .on_busy_alone = on_busy_alone,
        .on_slow = on_slow,
        .data = monitor,
    };
    monitor->kill_timer.data = monitor;
    (void)uv_timer_init(loop, &monitor->kill_timer);
    monitor->is_open = true;
    return ct_hang_sampler_start(loop, &options, &monitor->sampler, err);
}

void ct_hang_monitor_reset(struct ct_hang_monitor *monitor)
{
    stop_asking(monitor);
    stop_looking(&monitor->loop);
    monitor->awaits = monitor->has_killed = false;
    monitor->standing.report.stands = false;
    if (monitor->is_open) {
        (void)uv_timer_stop(&monitor->kill_timer);
    }
    ct_hang_sampler_reset(monitor->sampler, monitor->worker_env->first_rank,
                          monitor->worker_env->world_size == monitor->job->resolved->workers);
}

void ct_hang_monitor_vote(const struct ct_hang_monitor *monitor, struct ct_hang_vote *out)
{
    ct_hang_sampler_vote(monitor->sampler, out);
    out->generation = monitor->worker_env->generation;
}

/* Prints a line for the users of the other machines. The suspect's machine prints the details. */
static void tell_of_another(struct ct_hang_monitor *monitor, const struct ct_hang_vote *verdict,
                            const char *host)
{
    static const char *const what[CT_HANG_VOTE_KINDS] = {
        [CT_HANG_VOTE_STOPPED] = "it is stopped",
        [CT_HANG_VOTE_BUSY] = "the others wait for it",
        [CT_HANG_VOTE_STUCK] = "it is stuck in the kernel",
        [CT_HANG_VOTE_NAPPING] = "it sleeps in another place than the others",
        [CT_HANG_VOTE_BEHIND] = "it waits in an earlier step than the others",
        [CT_HANG_VOTE_ALL] = "no rank stands out",
    };
    char name[CT_HOST_MAX], line[CT_HOST_MAX + 160];
    (void)snprintf(name, sizeof(name), "%.*s", CT_HOST_MAX - 1, host);
    ct_text_clean(name); /* it goes to a terminal */
    int len = verdict->kind == CT_HANG_VOTE_ALL
                  ? snprintf(line, sizeof(line), CT_REPORT_PREFIX "the job hangs")
                  : snprintf(line, sizeof(line), CT_REPORT_PREFIX "rank %d hangs on %s",
                             verdict->rank, name);
    /* When the machines are asked where their workers stand, a rank may still stand out. */
    len += snprintf(line + len, sizeof(line) - (size_t)len,
                    ": no rank of the job has moved for %.1f s%s%s\n",
                    (double)verdict->still_ms / 1000, verdict->asks ? "" : ", and ",
                    verdict->asks ? "" : what[verdict->kind]);
    ct_output_say(monitor->output, CT_OUTPUT_ERR, line, (size_t)len);
    stand_elsewhere(monitor, verdict, name, verdict->asks ? "" : what[verdict->kind]);
}

/* No rank stands out, so each machine tells the membership where its workers stand. */
static void answer_verdict(struct ct_hang_monitor *monitor)
{
    monitor->verdict = (struct ct_hang_verdict){.reason = CT_HANG_ALL};
    monitor->duty = CT_HANG_STAND;
    if (!ask(monitor, -1)) {
        monitor->on_stands(monitor->data, NULL);
    }
}

/* Prints a reason that the membership has sent. */
static void say_reason(struct ct_hang_monitor *monitor, const char *reason)
{
    char words[CT_FAILURE_WHAT_MAX], line[CT_FAILURE_WHAT_MAX + 16];
    (void)snprintf(words, sizeof(words), "%s", reason);
    ct_text_clean(words); /* it goes to a terminal */
    int len = snprintf(line, sizeof(line), CT_REPORT_PREFIX "%s\n", words);
    ct_output_say(monitor->output, CT_OUTPUT_ERR, line, (size_t)len);
}

/* The membership has judged where the workers of all machines stand. */
static void take_last_verdict(struct ct_hang_monitor *monitor, const struct ct_hang_vote *verdict,
                              const char *reason, int local_rank, const struct ct_hang_todo *todo)
{
    bool is_named = verdict->kind == CT_HANG_VOTE_NAMED;
    if (todo->tells && is_named) {
        say_reason(monitor, reason);
    } else if (todo->tells) {
        say_nobody(monitor);
        if (strchr(reason, ' ') != NULL) { /* else it is the name of a host */
            say_reason(monitor, reason);
            set_why(monitor, reason);
        }
    }
    if (!todo->acts) {
        if (is_named && todo->tells) {
            stand_elsewhere(monitor, verdict, "", reason);
        }
        return;
    }
    bool is_alive = is_named && pid_of(monitor, local_rank) != 0;
    monitor->verdict = (struct ct_hang_verdict){
        .reason = is_alive ? CT_HANG_BUSY : CT_HANG_ALL,
        .local_rank = choose_worker(monitor, local_rank),
        .still_ns = verdict->still_ms * CT_NS_PER_MS,
    };
    if (is_alive && todo->tells) {
        stand_here(monitor, &monitor->verdict, reason);
        ct_hang_sampler_name(monitor->sampler, &monitor->verdict);
    }
    act(monitor);
}

/* The membership says that all workers stand still, and perhaps for whom they wait. */
static void take_first_verdict(struct ct_hang_monitor *monitor, const struct ct_hang_vote *verdict,
                               const char *host, bool is_here, const struct ct_hang_todo *todo)
{
    /* A worker of this machine is described in full, and the rest follows when it is explained. */
    if (is_here && todo->tells && ct_hang_sampler_take_job_verdict(monitor->sampler, verdict)) {
        return;
    }
    if (!is_here && todo->tells) {
        tell_of_another(monitor, verdict, todo->answers ? "" : host);
    }
    if (todo->answers) {
        answer_verdict(monitor);
    } else if (todo->acts && monitor->standing.report.stands && monitor->standing.is_here &&
               monitor->task == NULL) { /* it was told before */
        monitor->verdict = monitor->standing.verdict;
        act(monitor);
    }
}

void ct_hang_monitor_take_job_verdict(struct ct_hang_monitor *monitor,
                                      const struct ct_hang_vote *given, const char *text)
{
    struct ct_hang_vote own = *given, *verdict = &own, still;
    int first = monitor->worker_env->first_rank, local_rank = verdict->rank - first;
    bool is_here = local_rank >= 0 && local_rank < monitor->job->resolved->workers;
    struct ct_hang_todo todo;
    if (monitor->sampler == NULL || *monitor->stopping || !ct_hang_vote_is_verdict(verdict) ||
        verdict->generation != monitor->worker_env->generation) {
        return;
    }
    if (is_here && verdict->kind == CT_HANG_VOTE_ALL) {
        local_rank = choose_worker(monitor, local_rank);
        verdict->rank = first + local_rank;
    }
    settle(monitor);
    ct_hang_sampler_vote(monitor->sampler, &still);
    const struct ct_hang_news news = {.verdict = verdict,
                                      .is_here = is_here,
                                      .awaits = monitor->awaits,
                                      .stand_still = still.kind != CT_HANG_VOTE_NO,
                                      .now_ns = ct_clock_now(NULL)};
    ct_hang_standing_take(&monitor->standing, &news, &todo);
    monitor->awaits = todo.answers;
    if (todo.ends) {
        end_standing(monitor, stood_still_ms(&monitor->standing) - verdict->still_ms,
                     "the workers have made progress again");
        ct_hang_sampler_forget(monitor->sampler);
    }
    if (todo.objects) {
        monitor->on_report(monitor->data);
    } else if (todo.is_last) {
        take_last_verdict(monitor, verdict, text, local_rank, &todo);
    } else {
        take_first_verdict(monitor, verdict, text, is_here, &todo);
    }
}

void ct_hang_monitor_close(struct ct_hang_monitor *monitor)
{
    stop_asking(monitor);
    stop_looking(&monitor->loop);
    ct_hang_sampler_stop(monitor->sampler);
    monitor->sampler = NULL;
    if (monitor->is_open) {
        uv_close((uv_handle_t *)&monitor->kill_timer, NULL);
        monitor->is_open = false;
    }
}
