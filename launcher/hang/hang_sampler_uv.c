/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the timer fires, all pages are read, hang.c and slow.c are stepped and find nothing.
 *
 * Other paths: /proc is read too when hang.c wants it. On a verdict the kernel's wait channels of
 * all workers and the stack of the suspect are read, and the text goes to the caller.
 *
 * Failure modes: what cannot be read is not known, and no verdict is drawn from it. Without memory
 * this round says nothing, the next one may.
 *
 * Who frees: the timer's close callback.
 */
#include "launcher/hang/hang_sampler_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/num.h"
#include "launcher/process/proctree.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PERIOD_MS 1000
#define PERIOD_MIN_MS 100
/* Shorter than the pause after which hang.c starts the time anew. */
#define PERIOD_MAX_MS 2000
/* Reading /proc may take one part in this many of the time. */
#define SHARE 100

#define STACK_MAX 8192
/* Three numbers. */
#define SCHEDSTAT_MAX 80
#define STACK_INDENT "    "

struct ct_hang_sampler {
    uv_timer_t timer;
    struct ct_hang_sampler_options options;
    struct ct_hang hang;
    struct ct_slow slow;
    struct ct_hang_sample *samples;
    struct ct_progress *pages; /* as read, by local rank */
    bool *has_page;
    struct ct_proctree tree;
    struct ct_hang_vote still; /* what the last sample says */
    bool stopped;
    bool paused;
};

/* ---- what /proc says ------------------------------------------------------------------------ */

static int64_t ticks_to_ns(uint64_t ticks)
{
    long per_s = sysconf(_SC_CLK_TCK);
    return (int64_t)(ticks * (uint64_t)(CT_NS_PER_S / (per_s > 0 ? per_s : 100)));
}

/* The second number of the file; -1 where the kernel does not keep it. */
static int64_t read_queued(pid_t pid)
{
    char path[48];
    struct ct_buf text = CT_BUF_INIT;
    int64_t queued_ns = -1;
    (void)snprintf(path, sizeof(path), "/proc/%ld/schedstat", (long)pid);
    if (ct_file_read(path, SCHEDSTAT_MAX, &text, NULL) == 0 && text.len > 0) {
        char *number = strchr(ct_buf_cstr(&text), ' ');
        char *end = number != NULL ? strchr(number + 1, ' ') : NULL;
        if (end != NULL) {
            *end = '\0';
            queued_ns = ct_parse_i64(number + 1, 0, INT64_MAX, &queued_ns) == 0 ? queued_ns : -1;
        }
    }
    ct_buf_fini(&text);
    return queued_ns;
}

/* A worker leads its session. Its children stay in that session unless they call setsid(2). */
static void read_cpu(struct ct_hang_sampler *sampler)
{
    if (ct_proctree_read(&sampler->tree, NULL) != 0) {
        return;
    }
    for (int i = 0; i < sampler->options.workers; i++) {
        struct ct_hang_sample *sample = &sampler->samples[i];
        const struct ct_proctree_entry *leader = ct_proctree_find(&sampler->tree, sample->pid);
        if (!sample->alive || leader == NULL) {
            continue;
        }
        if (leader->exiting) { /* to free the memory of a large process takes long */
            sample->alive = false;
            continue;
        }
        sample->state = leader->state;
        sample->cpu_ns = 0;
        sample->queued_ns = read_queued(sample->pid);
    }
    for (size_t p = 0; p < sampler->tree.count; p++) {
        const struct ct_proctree_entry *entry = &sampler->tree.entries[p];
        for (int i = 0; i < sampler->options.workers; i++) {
            if (sampler->samples[i].cpu_ns >= 0 && sampler->samples[i].pid == entry->session) {
                sampler->samples[i].cpu_ns += ticks_to_ns(entry->cpu_ticks);
                break;
            }
        }
    }
}

static void read_wchan(struct ct_hang_sample *sample)
{
    char path[40];
    struct ct_buf text = CT_BUF_INIT;
    (void)snprintf(path, sizeof(path), "/proc/%ld/wchan", (long)sample->pid);
    sample->wchan[0] = '\0';
    if (ct_file_read(path, CT_HANG_WCHAN_MAX - 1, &text, NULL) == 0 && text.len > 0) {
        memcpy(sample->wchan, ct_buf_bytes(&text), text.len);
        sample->wchan[text.len] = '\0';
        sample->wchan[strcspn(sample->wchan, "\n")] = '\0';
    }
    ct_buf_fini(&text);
}

/* Appends the kernel stack, which shows the device or file system that a stuck rank waits for. Only
 * root may read it; others get nothing. */
static void read_stack(pid_t pid, struct ct_buf *out)
{
    char path[40];
    struct ct_buf text = CT_BUF_INIT;
    (void)snprintf(path, sizeof(path), "/proc/%ld/stack", (long)pid);
    if (ct_file_read(path, STACK_MAX, &text, NULL) == 0) {
        const char *line = ct_buf_cstr(&text);
        while (line != NULL && *line != '\0') {
            size_t len = strcspn(line, "\n");
            ct_buf_addf(out, STACK_INDENT "%.*s\n", (int)len, line);
            line += len + (line[len] == '\n');
        }
    }
    ct_buf_fini(&text);
}

/* ---- one sample ----------------------------------------------------------------------------- */

/* Fills all samples; returns whether /proc was read. */
static bool take_samples(struct ct_hang_sampler *sampler, int64_t now)
{
    bool wants_proc = false;
    ct_progress_reader_read_all(sampler->options.progress, now, sampler->pages, sampler->has_page);
    for (int i = 0; i < sampler->options.workers; i++) {
        pid_t pid = sampler->options.pid_of(sampler->options.data, i);
        bool has_page = sampler->options.progress->fd >= 0 && sampler->has_page[i];
        sampler->samples[i] = (struct ct_hang_sample){
            .alive = pid > 0,
            .pid = pid,
            .has_page = has_page,
            .page = sampler->pages[i],
            .cpu_ns = -1,
            .queued_ns = -1,
            .state = '?',
        };
        wants_proc = wants_proc || (pid > 0 && ct_hang_wants_proc(&sampler->hang, i, now));
    }
    if (wants_proc) {
        read_cpu(sampler);
        for (int i = 0; i < sampler->options.workers; i++) {
            if (sampler->samples[i].alive) {
                read_wchan(&sampler->samples[i]);
            }
        }
    }
    return wants_proc;
}

static void tell(struct ct_hang_sampler *sampler, const struct ct_hang_verdict *verdict,
                 int64_t now)
{
    struct ct_buf text = CT_BUF_INIT, stack = CT_BUF_INIT, why = CT_BUF_INIT;
    const struct ct_hang_sample *suspect = &sampler->samples[verdict->local_rank];
    int rc = ct_hang_describe(&sampler->hang, verdict, sampler->samples,
                              sampler->options.first_rank, now, sampler->options.prefix, &text);
    const char *words = rc == 0 ? ct_buf_cstr(&text) : NULL;
    rc = ct_hang_reason_text(verdict, suspect, &why);
    const char *reason = rc == 0 ? ct_buf_cstr(&why) : NULL;
    if (verdict->reason != CT_HANG_ALL) {
        read_stack(suspect->pid, &stack);
    }
    const char *frames = ct_buf_cstr(&stack);
    const struct ct_hang_words all = {
        .text = words != NULL ? words : "",
        .why = reason != NULL ? reason : "",
        .kernel_stack = frames != NULL ? frames : "",
    };
    sampler->options.on_verdict(sampler->options.data, verdict, &all);
    ct_buf_fini(&why);
    ct_buf_fini(&stack);
    ct_buf_fini(&text);
}

static uint64_t period_ms(const struct ct_hang_sampler *sampler, int64_t spent_ns)
{
    int64_t period = PERIOD_MS;
    int64_t quarter = sampler->options.timeout_ns / 4 / CT_NS_PER_MS;
    if (quarter > 0 && quarter < period) {
        period = quarter > PERIOD_MIN_MS ? quarter : PERIOD_MIN_MS;
    }
    int64_t modest = spent_ns * SHARE / CT_NS_PER_MS;
    period = modest > period ? modest : period;
    return (uint64_t)(period < PERIOD_MAX_MS ? period : PERIOD_MAX_MS);
}

static void judge_hang(struct ct_hang_sampler *sampler, int64_t now)
{
    struct ct_hang_verdict verdict;
    ct_hang_step(&sampler->hang, sampler->samples, now, &verdict);
    if (sampler->options.timeout_ns < 0) {
        return;
    }
    ct_hang_local_vote(&sampler->hang, sampler->samples, now, &sampler->still);
    int busy = ct_hang_busy_alone(&sampler->hang, sampler->samples, now);
    sampler->options.on_sampled(sampler->options.data); /* an older hang may be over */
    if (verdict.reason != CT_HANG_NONE) {
        tell(sampler, &verdict, now);
    } else if (busy >= 0) {
        sampler->options.on_busy_alone(sampler->options.data, busy);
    }
}

static void judge_slow(struct ct_hang_sampler *sampler, int64_t now)
{
    struct ct_slow_verdict verdict;
    ct_slow_step(&sampler->slow, sampler->samples, now, &verdict);
    if (verdict.local_rank >= 0) {
        sampler->options.on_slow(sampler->options.data, &verdict);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_hang_sampler *sampler = timer->data;
    int64_t now = ct_clock_now(NULL);
    if (sampler->paused) {
        (void)uv_timer_start(timer, on_timer, PERIOD_MIN_MS, 0);
        return;
    }
    bool looked = take_samples(sampler, now);
    int64_t spent = looked ? ct_clock_now(NULL) - now : 0;
    judge_hang(sampler, now);
    judge_slow(sampler, now);
    if (!sampler->stopped) {
        (void)uv_timer_start(timer, on_timer, period_ms(sampler, spent), 0);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static void free_sampler(struct ct_hang_sampler *sampler)
{
    ct_proctree_fini(&sampler->tree);
    ct_hang_fini(&sampler->hang);
    ct_slow_fini(&sampler->slow);
    ct_free(sampler->samples);
    ct_free(sampler->pages);
    ct_free(sampler->has_page);
    ct_free(sampler);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free_sampler(handle->data);
}

int ct_hang_sampler_start(uv_loop_t *loop, const struct ct_hang_sampler_options *options,
                          struct ct_hang_sampler **out, struct ct_err *err)
{
    size_t workers = (size_t)options->workers;
    struct ct_hang_sampler *sampler = ct_calloc(1, sizeof(*sampler));
    if (sampler == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory to watch the workers");
    }
    sampler->options = *options;
    sampler->samples = ct_calloc(workers, sizeof(*sampler->samples));
    sampler->pages = ct_calloc(workers, sizeof(*sampler->pages));
    sampler->has_page = ct_calloc(workers, sizeof(*sampler->has_page));
    if (sampler->samples == NULL || sampler->pages == NULL || sampler->has_page == NULL ||
        ct_hang_init(&sampler->hang, options->workers, options->whole_job, options->timeout_ns) !=
            0 ||
        ct_slow_init(&sampler->slow, options->workers, options->slow_factor) != 0) {
        free_sampler(sampler);
        return ct_err_set(err, CT_ENOMEM, "out of memory to watch the workers");
    }
    (void)uv_timer_init(loop, &sampler->timer); /* cannot fail */
    sampler->timer.data = sampler;
    (void)uv_timer_start(&sampler->timer, on_timer, period_ms(sampler, 0), 0);
    *out = sampler;
    return 0;
}

void ct_hang_sampler_reset(struct ct_hang_sampler *sampler, int first_rank, bool whole_job)
{
    if (sampler != NULL) {
        sampler->options.first_rank = first_rank;
        sampler->hang.whole_job = whole_job;
        sampler->still.kind = CT_HANG_VOTE_NO;
        ct_hang_reset(&sampler->hang);
        ct_slow_reset(&sampler->slow);
    }
}

void ct_hang_sampler_vote(const struct ct_hang_sampler *sampler, struct ct_hang_vote *out)
{
    *out = (struct ct_hang_vote){.kind = CT_HANG_VOTE_NO};
    if (sampler != NULL && sampler->still.kind != CT_HANG_VOTE_NO) {
        *out = sampler->still;
        out->rank += sampler->options.first_rank;
    }
}

bool ct_hang_sampler_is_over(const struct ct_hang_sampler *sampler,
                             const struct ct_hang_verdict *verdict)
{
    return ct_hang_is_over(&sampler->hang, sampler->samples, verdict);
}

void ct_hang_sampler_take_loop(struct ct_hang_sampler *sampler, int local_rank)
{
    struct ct_hang_verdict verdict;
    int64_t now = ct_clock_now(NULL);
    ct_hang_take_loop(&sampler->hang, sampler->samples, local_rank, now, &verdict);
    tell(sampler, &verdict, now);
}

void ct_hang_sampler_pause(struct ct_hang_sampler *sampler)
{
    sampler->paused = true;
}

bool ct_hang_sampler_resume(struct ct_hang_sampler *sampler)
{
    int64_t now = ct_clock_now(NULL);
    sampler->paused = false;
    (void)take_samples(sampler, now);
    return ct_hang_resume(&sampler->hang, sampler->samples, now);
}

void ct_hang_sampler_name(struct ct_hang_sampler *sampler, const struct ct_hang_verdict *verdict)
{
    ct_hang_name(&sampler->hang, verdict);
}

void ct_hang_sampler_forget(struct ct_hang_sampler *sampler)
{
    sampler->hang.standing.reason = CT_HANG_NONE;
}

bool ct_hang_sampler_take_job_verdict(struct ct_hang_sampler *sampler,
                                      const struct ct_hang_vote *verdict)
{
    struct ct_hang_verdict own;
    int64_t now = ct_clock_now(NULL);
    int local_rank = verdict->rank - sampler->options.first_rank;
    if (sampler->still.kind == CT_HANG_VOTE_NO || !sampler->samples[local_rank].alive) {
        return false;
    }
    ct_hang_take_job_verdict(&sampler->hang, local_rank, verdict->kind, now, &own);
    if (own.reason == CT_HANG_NONE) {
        return false;
    }
    tell(sampler, &own, now);
    return true;
}

void ct_hang_sampler_stop(struct ct_hang_sampler *sampler)
{
    if (sampler != NULL) {
        sampler->stopped = true;
        uv_close((uv_handle_t *)&sampler->timer, on_timer_closed);
    }
}
