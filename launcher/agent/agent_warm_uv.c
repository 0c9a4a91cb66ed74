/* SPDX-License-Identifier: Apache-2.0
 *
 * Spare interpreters (--warm): carries out what warm.h decides, and makes workers of spares.
 *
 * Happy path: when all workers run, a process reads the program and answers with a plan. Then one
 * spare after the other is started with the command line and the environment that the worker of its
 * rank will have in the next generation, but with the folder of ctrun's part in Python in front of
 * PYTHONPATH. It imports and says that it is ready. When the next generation begins, all spares get
 * their priority and their environment at once, and a timer looks for their answers. When each has
 * said that it is set, the workers are started one by one: a spare gets its descriptors and is told
 * to start. From then on it is a worker like any other.
 *
 * In a job of several machines spares are made before the first generation, too, while machines are
 * missing. A spare that still imports when a generation begins is asked with the others if it is
 * the only one that is not ready; otherwise, or when another one turns out to be of no use, it is
 * ended, so that no cold start waits for it.
 *
 * Failure modes: a spare that refuses, has printed, is stopped, does not answer in time, or has
 * died is ended, one line says why, and the worker starts cold. A spare is ended before the worker
 * is started in its place, so no rank is there twice. The loop goes on all the while. If the
 * generation ends during the hand-over, so do the spares that have its environment. One that
 * SIGKILL does not end is given up by the stop of its generation.
 *
 * Who frees: a spare lives until its process has ended or was given up, or belongs to a worker.
 * Spares are looked at from a timer, so they have no handles of their own. ct_agent_warm_close()
 * ends and frees all.
 */
#include "launcher/agent/agent_run_uv.h"
#include "launcher/agent/agent_spare_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/warm/spare.h"
#include "launcher/warm/spare_note.h"
#include "launcher/warm/spare_priority.h"
#include "launcher/warm/warm_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* All spares together have this time to compare their files and their environment, which takes
 * milliseconds unless a file server is slow. A cold start takes a multiple of it. */
#define SET_MS 2000
/* How long the loop waits at a time for what they answer, and between two looks. Most answer
 * sooner, and a timer alone would notice that a millisecond later. */
#define SET_LOOK_MS 1

/* How often the memory of a spare that imports is read, which takes some tens of microseconds. The
 * others hardly grow. */
#define MEMORY_MS 100

static const char too_little[] = "there is too little memory";

static const char *const own_names[] = {"launcher/warm/sitecustomize.py", "warm/sitecustomize.py"};

static void look_soon(struct ct_agent_run *run);
static void turn_off(struct ct_agent_run *run, const char *why);

static struct ct_agent_spare *find_spare(struct ct_agent_run *run, int rank)
{
    for (struct ct_list *l = run->warm.all.next; l != &run->warm.all; l = l->next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        if (spare->rank == rank && spare->channel >= 0) {
            return spare;
        }
    }
    return NULL;
}

/* Says that the worker of this spare starts cold, and why. */
static void say_why_cold(const struct ct_agent_spare *spare, const char *why)
{
    struct ct_agent_run *run = spare->run;
    ct_agent_report_say(run->output, "rank %d starts cold: %s",
                        run->worker_env.first_rank + spare->rank, why);
    if (run->warm.cold[0] == '\0') { /* a later reason may only follow from the first */
        (void)snprintf(run->warm.cold, sizeof(run->warm.cold), "%s", why);
    }
}

/* The same, because of this answer of the spare. */
static void say_cold(const struct ct_agent_spare *spare, const struct ct_spare_message *answer)
{
    char why[CT_WARM_WHY_MAX];
    if (answer->word == CT_SPARE_NO) {
        (void)snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, answer->text);
    } else {
        (void)snprintf(why, sizeof(why), "its spare (pid %d) %s", (int)ct_proc_pid(spare->proc),
                       answer->word == CT_SPARE_GONE ? "has died" : "does not answer");
    }
    say_why_cold(spare, why);
}

static void on_spare_exit(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct ct_agent_spare *spare = data;
    struct ct_agent_run *run = spare->run;
    if (spare->channel >= 0 && spare->rank >= 0) {
        /* Its last message may say why it has ended. If it has printed more than it may, that is an
         * error which only follows from this. */
        struct ct_spare_message *message = &run->warm.message;
        char why[CT_WARM_WHY_MAX];
        bool imported = spare->rank != run->warm.policy.importing;
        bool printed =
            ct_agent_spare_printed(spare, imported ? "a spare" : "an import", why, sizeof(why));
        ct_spare_receive(spare->channel, message);
        if (message->word == CT_SPARE_READY) {
            imported = true;
            ct_spare_receive(spare->channel, message);
        }
        if ((printed || message->word == CT_SPARE_NO) && !(spare->asked && imported)) {
            turn_off(run, printed ? why : message->text);
        } else if (spare->asked) {
            say_cold(spare, message);
        }
        if (spare->awaited) {
            ct_warm_waited_in_vain(&run->warm.policy);
        }
        if (printed || message->word == CT_SPARE_NO) {
            ct_warm_taken(&run->warm.policy, spare->rank);
        } else {
            ct_warm_died(&run->warm.policy, spare->rank);
        }
        look_soon(run);
    }
    if (spare->rank >= 0 || spare->channel < 0) {
        ct_proc_free(proc);
        ct_agent_spare_free(spare);
    } else {
        spare->proc = NULL; /* on_look() reads its answer */
        spare->killed = end->signal != 0;
        ct_proc_free(proc);
        look_soon(run);
    }
}

/* ---- looking at them ------------------------------------------------------------------------- */

/* Says once why no spare is made any more. */
static void say_off(struct ct_agent_run *run)
{
    if (run->warm.policy.off && !run->warm.said_off && ct_agent_report_speaks(run->job->resolved)) {
        ct_agent_report_say(run->output, "--warm makes no spares: %s", run->warm.policy.why);
    }
    run->warm.said_off = run->warm.policy.off;
}

/* Says once that not all spares, or not even one, fit into the memory. More may fit in a later
 * generation. */
static void say_full(struct ct_agent_run *run, const struct ct_warm_memory *memory)
{
    struct ct_warm *policy = &run->warm.policy;
    char some[64];
    if (run->warm.said_full || !policy->full || policy->off || policy->importing >= 0 ||
        !ct_agent_report_speaks(run->job->resolved)) {
        return;
    }
    run->warm.said_full = true;
    int ready = ct_warm_count(policy, CT_WARM_READY);
    (void)snprintf(some, sizeof(some), ready == 0 ? "no spares" : "only %d of %d spares", ready,
                   policy->count);
    bool machine = memory->total > 0 && memory->available < memory->total / 10 + policy->each;
    if (policy->limit > 0 && !machine) {
        ct_agent_report_say(
            run->output,
            "--warm makes %s now: %s more than the %" PRIu64 " MiB that --warm-memory allows", some,
            ready == 0 ? "one takes" : "all of them take", policy->limit >> 20);
    } else {
        ct_agent_report_say(run->output,
                            "--warm makes %s now: %s (%" PRIu64 " of %" PRIu64
                            " MiB are free, and a tenth must stay free)",
                            some, too_little, memory->available >> 20, memory->total >> 20);
    }
}

static void turn_off(struct ct_agent_run *run, const char *why)
{
    ct_warm_turn_off(&run->warm.policy, why);
    say_off(run);
}

static void drop(struct ct_agent_run *run, int rank)
{
    struct ct_agent_spare *spare = find_spare(run, rank);
    if (spare != NULL) {
        ct_agent_spare_end(spare);
    }
}

static void look_at_plan(struct ct_agent_run *run)
{
    struct ct_agent_spare *spare = find_spare(run, -1);
    struct ct_spare_message *message = &run->warm.message;
    if (spare == NULL) {
        return;
    }
    ct_spare_receive(spare->channel, message);
    if ((message->word == CT_SPARE_NOTHING || message->word == CT_SPARE_GONE) &&
        spare->proc != NULL) {
        return; /* of a process that was killed, the socket is closed before its end is seen */
    }
    /* Without a process nothing will come, although another process may still hold the socket. */
    if (message->word == CT_SPARE_PLAN) {
        ct_free(run->warm.plan);
        run->warm.plan = ct_strdup(message->text);
        if (run->warm.plan != NULL) {
            ct_warm_planned(&run->warm.policy);
        } else {
            ct_warm_plan_failed(&run->warm.policy);
        }
    } else if (message->word == CT_SPARE_NO) {
        turn_off(run, message->text);
    } else if (run->workers.stopping || !run->warm.policy.running) {
        ct_warm_plan_failed(&run->warm.policy); /* the stop has ended it */
    } else if (spare->killed) {
        ct_warm_plan_died(&run->warm.policy);
    } else {
        turn_off(run, "this interpreter does not import sitecustomize at its start");
    }
    if (spare->proc == NULL) {
        ct_agent_spare_free(spare);
    } else {
        ct_agent_spare_end(spare);
    }
}

/* What the spare takes, as it was not more than `age_ms` ago. If that cannot be told, no limit of
 * memory could be kept, so no spare is made any more. */
static uint64_t memory_of(struct ct_agent_spare *spare, int64_t age_ms)
{
    int64_t now_ns = ct_clock_now(NULL);
    pid_t pid = ct_proc_pid(spare->proc);
    if (now_ns - spare->memory_ns >= age_ms * CT_NS_PER_MS) {
        spare->memory_ns = now_ns;
        if (!ct_warm_memory_of(pid, &spare->memory)) {
            char why[CT_WARM_WHY_MAX];
            (void)snprintf(why, sizeof(why),
                           "a spare (pid %d) has so many descriptors or processes that its memory "
                           "cannot be counted",
                           (int)pid);
            turn_off(spare->run, why);
        }
    }
    return spare->memory;
}

/* A spare has said that it has imported all. */
static void take_ready(struct ct_agent_spare *spare)
{
    struct ct_agent_run *run = spare->run;
    uint64_t bytes = memory_of(spare, 0);
    ct_warm_ready(&run->warm.policy, spare->rank, bytes);
    ct_log(&run->log, CT_LOG_INFO,
           "the spare of local rank %d is ready (pid %d, %llu MiB, %lld ms of CPU)", spare->rank,
           (int)ct_proc_pid(spare->proc), (unsigned long long)(bytes >> 20),
           (long long)ct_agent_spare_cpu_ms(spare));
}

static void look_at_import(struct ct_agent_run *run)
{
    struct ct_warm *policy = &run->warm.policy;
    struct ct_agent_spare *spare =
        policy->importing >= 0 ? find_spare(run, policy->importing) : NULL;
    struct ct_spare_message *message = &run->warm.message;
    char why[CT_WARM_WHY_MAX] = "";
    if (spare == NULL) {
        return;
    }
    ct_spare_receive(spare->channel, message);
    /* This cannot wait until it is ready: what it prints into a file in memory takes memory, and
     * into a full pipe it waits. */
    bool printed = ct_agent_spare_printed(spare, "an import", why, sizeof(why));
    if (!printed && (message->word == CT_SPARE_NOTHING || message->word == CT_SPARE_GONE)) {
        /* on_spare_exit() sees that it is gone. */
        ct_warm_used(policy, ct_agent_spare_cpu_ms(spare), ct_clock_now(NULL));
        return;
    }
    if (!printed && message->word == CT_SPARE_READY) {
        take_ready(spare);
        return;
    }
    if (why[0] == '\0') {
        (void)snprintf(why, sizeof(why), "%s",
                       message->word == CT_SPARE_NO ? message->text : "it sent a wrong message");
    }
    turn_off(run, why);
}

/* A thread that an import has left may go on printing. Another spare would do the same. */
static void look_at_ready(struct ct_agent_run *run)
{
    struct ct_warm *policy = &run->warm.policy;
    char why[CT_WARM_WHY_MAX];
    for (struct ct_list *l = run->warm.all.next; l != &run->warm.all; l = l->next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        if (spare->channel >= 0 && spare->rank >= 0 && spare->rank != policy->importing &&
            ct_agent_spare_printed(spare, "a spare", why, sizeof(why))) {
            turn_off(run, why);
            return;
        }
    }
}

static void read_memory(struct ct_agent_run *run, struct ct_warm_memory *memory)
{
    *memory = (struct ct_warm_memory){0};
    ct_warm_memory_read(&ct_warm_here, memory);
    for (struct ct_list *l = run->warm.all.next; l != &run->warm.all; l = l->next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        if (spare->proc == NULL || spare->channel < 0) {
            continue;
        }
        bool imports = spare->rank == run->warm.policy.importing;
        memory->spares += memory_of(spare, imports ? MEMORY_MS : CT_WARM_QUIET_MS);
    }
}

/* Ends a spare, so that there is more memory. The kernel may take a while. */
static void drop_for(struct ct_agent_run *run, int rank, struct ct_warm_memory *memory)
{
    struct ct_agent_spare *spare = find_spare(run, rank);
    if (spare != NULL) {
        memory->available += spare->memory;
        memory->spares -= spare->memory < memory->spares ? spare->memory : memory->spares;
        ct_agent_spare_end(spare);
    }
}

static void on_look(uv_timer_t *timer)
{
    struct ct_agent_run *run = timer->data;
    struct ct_warm *policy = &run->warm.policy;
    struct ct_warm_memory memory;
    look_at_plan(run);
    look_at_import(run);
    look_at_ready(run);
    read_memory(run, &memory);
    for (;;) {
        struct ct_err err = {0};
        struct ct_warm_action action = ct_warm_step(policy, &memory, ct_clock_now(NULL));
        say_off(run);
        say_full(run, &memory);
        switch (action.act) {
        case CT_WARM_WAIT:
            if (action.wait_ms >= 0) {
                uv_timer_start(timer, on_look, (uint64_t)action.wait_ms, 0);
            }
            return;
        case CT_WARM_DROP:
            drop_for(run, action.spare, &memory);
            break;
        case CT_WARM_GIVE_UP:
            drop(run, -1);
            break;
        case CT_WARM_PLAN:
        case CT_WARM_MAKE:
            if (action.act == CT_WARM_MAKE && !ct_agent_spare_plan_holds(run)) {
                ct_warm_plan_again(policy, action.spare);
            } else if (ct_agent_spare_make(run, action.spare, on_spare_exit, &err) != 0) {
                turn_off(run, err.text);
            }
            break;
        }
    }
}

static void look_soon(struct ct_agent_run *run)
{
    /* During the hand-over on_set_look() looks. */
    if (run->warm.on && !uv_is_closing((uv_handle_t *)&run->warm.timer) &&
        !uv_is_active((uv_handle_t *)&run->warm.set_timer)) {
        uv_timer_start(&run->warm.timer, on_look, 0, 0);
    }
}

/* ---- what others call ------------------------------------------------------------------------ */

static bool find_folder(struct ct_agent_run *run)
{
    for (size_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++) {
        char *path = NULL;
        if (ct_command_find_own(run->job->machine->own_dir, own_names[i], &path) == 0) {
            *strrchr(path, '/') = '\0';
            run->warm.folder = path;
            return strchr(path, ':') == NULL;
        }
    }
    return false;
}

int ct_agent_warm_open(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_job_spec *job = run->job;
    const struct ct_options *options = job->options;
    int workers = job->resolved->workers;
    int wanted = options->warm < 0 ? workers : options->warm;
    ct_list_init(&run->warm.all);
    if (wanted == 0 || (options->max_restarts == 0 && !job->resolved->shared)) {
        return 0;
    }
    if (wanted > workers) {
        ct_log(&run->log, CT_LOG_WARNING,
               "--warm=%d: there are %d worker%s here, so %d spare%s will be made", wanted, workers,
               workers == 1 ? "" : "s", workers, workers == 1 ? "" : "s");
        wanted = workers;
    }
    if (!job->command->python && !ct_spare_note_in(job->command->path)) {
        ct_log(&run->log, CT_LOG_WARNING,
               "--warm has no effect: %s is no Python program, and offers no warm form of itself",
               options->command[0]);
        return 0;
    }
    if (job->command->python && !find_folder(run)) {
        ct_log(&run->log, CT_LOG_WARNING,
               "--warm has no effect: sitecustomize.py of ctrun is not where it was installed");
        return 0;
    }
    if (ct_warm_init(&run->warm.policy, wanted, (uint64_t)options->warm_memory_mib << 20) != 0) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %d spares", wanted);
    }
    CT_ASSERT(uv_timer_init(&run->loop, &run->warm.timer) == 0); /* cannot fail */
    CT_ASSERT(uv_timer_init(&run->loop, &run->warm.set_timer) == 0);
    run->warm.timer.data = run->warm.set_timer.data = run;
    run->warm.on = true;
    return 0;
}

void ct_agent_warm_wait(struct ct_agent_run *run)
{
    if (run->agent.generation < 0 && run->job->resolved->max_nodes > 1) {
        ct_agent_warm_run(run);
    }
}

void ct_agent_warm_run(struct ct_agent_run *run)
{
    const struct ct_job_spec *job = run->job;
    if (run->warm.on) {
        /* In a job of several machines the next generation can begin without a restart. */
        if (!job->resolved->shared && run->report.story.restarts >= job->options->max_restarts) {
            turn_off(run, "no restart is left");
        }
        ct_warm_run(&run->warm.policy, ct_clock_now(NULL));
        look_soon(run);
    }
}

/* Ends the spares that have the environment of a generation that does not begin. */
static void end_asked(struct ct_agent_run *run)
{
    for (int rank = 0; rank < run->warm.policy.count; rank++) {
        struct ct_agent_spare *spare = find_spare(run, rank);
        if (spare != NULL && spare->asked) {
            ct_warm_taken(&run->warm.policy, rank);
            ct_agent_spare_end(spare);
        }
    }
}

void ct_agent_warm_end_import(struct ct_agent_run *run)
{
    int rank = run->warm.policy.importing;
    if (run->warm.on && rank >= 0) {
        ct_warm_taken(&run->warm.policy, rank);
        drop(run, rank);
    }
}

void ct_agent_warm_stop(struct ct_agent_run *run)
{
    struct ct_warm *policy = &run->warm.policy;
    if (!run->warm.on) {
        return;
    }
    if (policy->running) {
        run->warm.at_stop = ct_warm_making(policy);
    }
    ct_warm_stop(policy);
    /* The next world may be long in coming. A look at once would delay it. */
    uv_timer_start(&run->warm.timer, on_look, CT_WARM_QUIET_MS, 0);
    uv_timer_stop(&run->warm.set_timer);
    end_asked(run);
    struct ct_agent_spare *plan = find_spare(run, -1);
    if (plan != NULL && plan->proc != NULL) {
        ct_agent_spare_end(plan);
    } else if (plan != NULL) {
        ct_agent_spare_free(plan);
    }
}

static struct ct_agent_spare *spare_of(struct ct_agent_run *run, const struct ct_proc *proc)
{
    for (struct ct_list *l = run->warm.all.next; run->warm.on && l != &run->warm.all; l = l->next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        if (spare->proc == proc) {
            return spare;
        }
    }
    return NULL;
}

bool ct_agent_warm_may_stay(struct ct_agent_run *run, struct ct_proc *proc,
                            enum ct_proc_stay *answer)
{
    struct ct_agent_spare *spare = spare_of(run, proc);
    bool decided;
    if (spare == NULL) {
        return false;
    }
    *answer = CT_PROC_STAYS;
    if (spare->channel < 0 || !ct_agent_may_keep(&run->agent, &decided)) {
        /* Its work is of no value, so it needs no time to end. */
        if (spare->channel >= 0 && spare->rank >= 0) {
            ct_warm_taken(&run->warm.policy, spare->rank);
        }
        ct_agent_spare_end(spare);
        *answer = CT_PROC_ENDS;
    }
    return true;
}

bool ct_agent_warm_stopped(struct ct_agent_run *run)
{
    struct ct_list *next;
    for (struct ct_list *l = run->warm.all.next; run->warm.on && l != &run->warm.all; l = next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        next = l->next;
        if (spare->channel < 0) {
            /* The stop has waited for its end. A tracer holds it, or it waits in the kernel. */
            ct_proc_free(spare->proc);
            ct_agent_spare_free(spare);
        }
    }
    return run->warm.on && !ct_list_empty(&run->warm.all);
}

/* Ends a spare whose worker starts cold. */
static void give_up(struct ct_agent_spare *spare)
{
    if (spare->awaited) {
        ct_warm_waited_in_vain(&spare->run->warm.policy);
    }
    ct_warm_taken(&spare->run->warm.policy, spare->rank);
    ct_agent_spare_end(spare);
}

/* Says why the worker starts cold, and ends its spare. */
static void refuse(struct ct_agent_spare *spare, const char *why)
{
    say_why_cold(spare, why);
    give_up(spare);
}

/* Looks at a spare that was asked while it still imports. Returns whether it may become a worker.
 */
static bool still_imports(struct ct_agent_spare *spare, int64_t now_ns)
{
    struct ct_agent_run *run = spare->run;
    struct ct_spare_message *message = &run->warm.message;
    char why[CT_WARM_WHY_MAX];
    ct_spare_receive(spare->channel, message);
    bool printed = ct_agent_spare_printed(spare, "an import", why, sizeof(why));
    if (!printed && message->word == CT_SPARE_READY) {
        take_ready(spare);
        /* A thread may have been made by one that was at idle priority still. */
        (void)ct_spare_priority_restore(ct_proc_pid(spare->proc));
        run->warm.set_until_ns = now_ns + SET_MS * CT_NS_PER_MS;
        return true;
    }
    bool late = now_ns >= run->warm.import_until_ns;
    if (!printed && message->word == CT_SPARE_NOTHING && !late && !ct_agent_spare_stopped(spare)) {
        return true;
    }
    if (printed || message->word == CT_SPARE_NO) {
        turn_off(run, printed ? why : message->text);
    } else if (late) {
        (void)snprintf(why, sizeof(why), "its spare (pid %d) still imports after %d s",
                       (int)ct_proc_pid(spare->proc), CT_WARM_WAIT_MS / 1000);
        say_why_cold(spare, why);
    } else {
        say_cold(spare, message);
    }
    give_up(spare);
    return false;
}

/* Takes the spare's answer. Returns whether there is none yet. */
static bool still_open(struct ct_agent_spare *spare)
{
    struct ct_agent_run *run = spare->run;
    struct ct_spare_message *message = &run->warm.message;
    int64_t now_ns = ct_clock_now(NULL);
    if (!spare->asked || spare->set) {
        return false;
    }
    if (spare->rank == run->warm.policy.importing) {
        return still_imports(spare, now_ns);
    }
    ct_spare_receive(spare->channel, message);
    spare->set = message->word == CT_SPARE_SET;
    if (spare->set) {
        return false;
    }
    bool late = now_ns >= run->warm.set_until_ns;
    if (message->word == CT_SPARE_NOTHING && !late && !ct_agent_spare_stopped(spare)) {
        return true;
    }
    say_cold(spare, message);
    give_up(spare);
    return false;
}

/* Ends the spare that the generation waits for, if another worker starts cold after all. */
static void end_vain_wait(struct ct_agent_run *run)
{
    int importing = run->warm.policy.importing;
    struct ct_agent_spare *import = importing >= 0 ? find_spare(run, importing) : NULL;
    bool all_warm = true;
    for (int rank = 0; rank < run->warm.policy.count; rank++) {
        const struct ct_agent_spare *spare = find_spare(run, rank);
        bool warm = run->workers.list[rank].kept || (spare != NULL && spare->asked);
        all_warm = all_warm && warm;
    }
    if (import != NULL && import->awaited && !all_warm) {
        import->awaited = false; /* it is not to blame */
        refuse(import, "another worker here starts cold, too");
    }
}

/* Takes what spares have answered. Returns the socket of one that has not; -1 = there is none. */
static int take_answers(struct ct_agent_run *run)
{
    int open = -1;
    end_vain_wait(run);
    for (int rank = 0; rank < run->warm.policy.count; rank++) {
        struct ct_agent_spare *spare = find_spare(run, rank);
        if (spare != NULL && still_open(spare)) {
            open = spare->channel;
        }
    }
    return open;
}

static void on_set_look(uv_timer_t *timer)
{
    struct ct_agent_run *run = timer->data;
    struct pollfd open = {.fd = take_answers(run), .events = POLLIN};
    for (int rank = 0; rank < run->warm.policy.count && open.fd >= 0; rank++) {
        if (poll(&open, 1, SET_LOOK_MS) <= 0) {
            break;
        }
        open.fd = take_answers(run);
    }
    if (open.fd >= 0) {
        /* A timer of 0 would come again before the loop sees signals and the network. */
        uv_timer_start(timer, on_set_look, SET_LOOK_MS, 0);
        return;
    }
    ct_agent_dispatch(run, ct_agent_workers_start(run, 0));
}

/* Ends the spare that still imports, unless the generation waits for it. */
static void choose_import(struct ct_agent_run *run)
{
    int rank = run->warm.policy.importing;
    if (!ct_warm_waits(&run->warm.policy, run->job->resolved->workers) ||
        run->workers.list[rank].kept) {
        ct_agent_warm_end_import(run);
    } else {
        ct_log(&run->log, CT_LOG_INFO, "waiting for the spare of local rank %d, which imports",
               rank);
    }
}

bool ct_agent_warm_begin(struct ct_agent_run *run)
{
    int asked = 0;
    run->warm.taken = 0;
    run->warm.cold[0] = '\0';
    if (run->warm.on) {
        uv_timer_stop(&run->warm.timer);
        look_at_import(run);
        choose_import(run);
    }
    for (int rank = 0; run->warm.on && rank < run->warm.policy.count; rank++) {
        struct ct_agent_spare *spare = find_spare(run, rank);
        char why[CT_WARM_WHY_MAX];
        if (spare == NULL || run->workers.list[rank].kept) {
            continue;
        }
        if (ct_agent_spare_ask(spare, why)) {
            spare->awaited = rank == run->warm.policy.importing;
            asked++;
        } else {
            refuse(spare, why);
        }
    }
    if (asked == 0) {
        return false;
    }
    run->warm.set_until_ns = ct_clock_now(NULL) + SET_MS * CT_NS_PER_MS;
    run->warm.import_until_ns = ct_clock_now(NULL) + CT_WARM_WAIT_MS * CT_NS_PER_MS;
    uv_timer_start(&run->warm.set_timer, on_set_look, 0, 0);
    return true;
}

struct ct_proc *ct_agent_warm_take(void *data, int local_rank, char *const *argv, char *const *env,
                                   const int stdio[3], ct_proc_exit_fn on_exit, void *owner)
{
    struct ct_agent_run *run = data;
    struct ct_agent_spare *spare = run->warm.on ? find_spare(run, local_rank) : NULL;
    char why[CT_WARM_WHY_MAX] = "its environment is another one now";
    if (spare == NULL || !spare->set) {
        return NULL;
    }
    if (!ct_agent_spare_same(spare->args.list, argv) ||
        !ct_agent_spare_same(spare->vars.list, env) || !ct_agent_spare_go(spare, stdio, why)) {
        refuse(spare, why);
        return NULL;
    }
    struct ct_proc *proc = spare->proc;
    ct_warm_taken(&run->warm.policy, local_rank);
    ct_proc_pass(proc, on_exit, owner);
    ct_agent_spare_free(spare);
    run->warm.taken++;
    run->warm.taken_in_all++;
    return proc;
}

void ct_agent_warm_report(struct ct_agent_run *run)
{
    if (run->report.story.worlds <= 1) {
        run->report.story.first_warm = run->warm.taken;
    }
    if (!run->warm.on || !ct_agent_report_speaks(run->job->resolved)) {
        return;
    }
    int workers = run->job->resolved->workers, generation = run->agent.generation;
    if (run->warm.taken > 0) {
        ct_agent_report_say(run->output,
                            workers == 1 ? "generation %d: the worker here was warm"
                                         : "generation %d: %d of %d workers here were warm",
                            generation, run->warm.taken, workers);
    } else if (run->report.story.worlds > 1 && run->workers.kept == 0 &&
               run->warm.cold[0] == '\0' && !run->warm.policy.off) {
        /* Otherwise a line has said why. */
        ct_agent_report_say(run->output, "generation %d: no spare was ready: a cold start",
                            generation);
    }
}

void ct_agent_warm_facts(const struct ct_agent_run *run, struct ct_warm_facts *out)
{
    const struct ct_warm *policy = &run->warm.policy;
    if (!run->warm.on) {
        return;
    }
    out->wanted = policy->count;
    out->ready = ct_warm_count(policy, CT_WARM_READY);
    out->making = ct_warm_making(policy);
    out->workers = run->warm.taken;
    out->mib = (int)(policy->each >> 20 < INT_MAX ? policy->each >> 20 : INT_MAX);
    const char *why = policy->off ? policy->why : ct_warm_none_fits(policy) ? too_little : "";
    (void)snprintf(out->off, sizeof(out->off), "%.*s", (int)sizeof(out->off) - 1, why);
    (void)snprintf(out->cold, sizeof(out->cold), "%.*s", (int)sizeof(out->cold) - 1,
                   run->warm.cold);
}

void ct_agent_warm_close(struct ct_agent_run *run)
{
    if (run->warm.on) {
        while (!ct_list_empty(&run->warm.all)) {
            struct ct_agent_spare *spare =
                CT_CONTAINER_OF(run->warm.all.next, struct ct_agent_spare, link);
            if (spare->proc != NULL) {
                ct_proc_signal_group(spare->proc, SIGKILL);
                ct_proc_free(spare->proc);
            }
            ct_agent_spare_free(spare);
        }
        run->warm.on = false;
        uv_close((uv_handle_t *)&run->warm.timer, NULL);
        uv_close((uv_handle_t *)&run->warm.set_timer, NULL);
    }
    ct_warm_fini(&run->warm.policy);
    ct_free(run->warm.plan);
    ct_free(run->warm.folder);
    run->warm.plan = run->warm.folder = NULL;
}
