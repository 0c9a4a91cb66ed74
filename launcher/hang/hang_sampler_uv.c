/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the timer fires, all pages are read, the core is stepped, nothing comes of it.
 *
 * Other paths: /proc is read too, where the core wants it. A verdict: the kernel's wait channels of
 * all workers and the stack of the suspect are read, the text is made and told.
 *
 * Failure modes: whatever cannot be read is not known, and the core draws no verdict from that. Out
 * of memory for a snapshot or the text: this round says nothing, the next one may.
 *
 * Who frees: the timer's close callback.
 */
#include "launcher/hang/hang_sampler_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "launcher/process/proctree.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PERIOD_MS 1000
#define PERIOD_MIN_MS 100
/* Below the pause after which hang.c starts the time anew. */
#define PERIOD_MAX_MS 2000
/* Reading /proc may take one part in this many of the time. */
#define SHARE 100

#define STACK_MAX 8192
#define STACK_INDENT "    "

struct ct_hang_sampler {
    uv_timer_t timer;
    struct ct_hang_sampler_options options;
    struct ct_hang hang;
    struct ct_hang_sample *samples;
    struct ct_progress *pages; /* as read, by local rank */
    bool *has_page;
    struct ct_proctree tree;
    struct ct_hang_vote still; /* at the last look */
    bool stopped;
};

/* ---- what /proc says ------------------------------------------------------------------------ */

static int64_t ticks_to_ns(uint64_t ticks)
{
    long per_s = sysconf(_SC_CLK_TCK);
    return (int64_t)(ticks * (uint64_t)(CT_NS_PER_S / (per_s > 0 ? per_s : 100)));
}

/* A worker leads its session, and what it starts stays in there unless it takes pains not to. */
static void read_cpu(struct ct_hang_sampler *watch)
{
    if (ct_proctree_read(&watch->tree, NULL) != 0) {
        return;
    }
    for (int i = 0; i < watch->options.workers; i++) {
        struct ct_hang_sample *sample = &watch->samples[i];
        const struct ct_proctree_entry *leader = ct_proctree_find(&watch->tree, sample->pid);
        if (!sample->alive || leader == NULL) {
            continue;
        }
        sample->state = leader->state;
        sample->cpu_ns = 0;
    }
    for (size_t p = 0; p < watch->tree.count; p++) {
        const struct ct_proctree_entry *entry = &watch->tree.entries[p];
        for (int i = 0; i < watch->options.workers; i++) {
            if (watch->samples[i].cpu_ns >= 0 && watch->samples[i].pid == entry->session) {
                watch->samples[i].cpu_ns += ticks_to_ns(entry->cpu_ticks);
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

/* Only root may read it; then it tells which device or file system a stuck rank waits for. */
static void read_stack(pid_t pid, struct ct_buf *out)
{
    char path[40];
    struct ct_buf text = CT_BUF_INIT;
    (void)snprintf(path, sizeof(path), "/proc/%ld/stack", (long)pid);
    if (ct_file_read(path, STACK_MAX, &text, NULL) == 0) {
        const char *line = ct_buf_cstr(&text);
        int rc = 0;
        while (rc == 0 && line != NULL && *line != '\0') {
            size_t len = strcspn(line, "\n");
            rc = ct_buf_printf(out, STACK_INDENT "%.*s\n", (int)len, line);
            line += len + (line[len] == '\n');
        }
    }
    ct_buf_fini(&text);
}

/* ---- one sample ----------------------------------------------------------------------------- */

/* Fills all samples; returns whether /proc was read. */
static bool take_samples(struct ct_hang_sampler *watch, int64_t now)
{
    bool wants_proc = false;
    ct_progress_reader_read_all(watch->options.progress, now, watch->pages, watch->has_page);
    for (int i = 0; i < watch->options.workers; i++) {
        pid_t pid = watch->options.pid_of(watch->options.data, i);
        bool has_page = watch->options.progress->fd >= 0 && watch->has_page[i];
        watch->samples[i] = (struct ct_hang_sample){
            .alive = pid > 0,
            .pid = pid,
            .has_page = has_page,
            .page = watch->pages[i],
            .cpu_ns = -1,
            .state = '?',
        };
        wants_proc = wants_proc || (pid > 0 && ct_hang_wants_proc(&watch->hang, i, now));
    }
    if (wants_proc) {
        read_cpu(watch);
        for (int i = 0; i < watch->options.workers; i++) {
            if (watch->samples[i].alive) {
                read_wchan(&watch->samples[i]);
            }
        }
    }
    return wants_proc;
}

static void tell(struct ct_hang_sampler *watch, const struct ct_hang_verdict *verdict, int64_t now)
{
    struct ct_buf text = CT_BUF_INIT, stack = CT_BUF_INIT;
    read_stack(watch->samples[verdict->local_rank].pid, &stack);
    const char *frames = ct_buf_cstr(&stack);
    int rc = ct_hang_describe(&watch->hang, verdict, watch->samples, watch->options.first_rank,
                              frames != NULL ? frames : "", now, watch->options.prefix, &text);
    const char *words = rc == 0 ? ct_buf_cstr(&text) : NULL;
    watch->options.on_verdict(watch->options.data, verdict, words != NULL ? words : "");
    ct_buf_fini(&stack);
    ct_buf_fini(&text);
}

static uint64_t period_ms(const struct ct_hang_sampler *watch, int64_t spent_ns)
{
    int64_t period = PERIOD_MS;
    int64_t quarter = watch->options.timeout_ns / 4 / CT_NS_PER_MS;
    if (quarter > 0 && quarter < period) {
        period = quarter > PERIOD_MIN_MS ? quarter : PERIOD_MIN_MS;
    }
    int64_t modest = spent_ns * SHARE / CT_NS_PER_MS;
    period = modest > period ? modest : period;
    return (uint64_t)(period < PERIOD_MAX_MS ? period : PERIOD_MAX_MS);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_hang_sampler *watch = timer->data;
    struct ct_hang_verdict verdict;
    int64_t now = ct_clock_now(NULL);
    bool looked = take_samples(watch, now);
    int64_t spent = looked ? ct_clock_now(NULL) - now : 0;
    ct_hang_step(&watch->hang, watch->samples, now, &verdict);
    ct_hang_still(&watch->hang, watch->samples, now, &watch->still);
    if (verdict.reason != CT_HANG_NONE) {
        tell(watch, &verdict, now);
    }
    if (!watch->stopped) {
        (void)uv_timer_start(timer, on_timer, period_ms(watch, spent), 0);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static void free_watch(struct ct_hang_sampler *watch)
{
    ct_proctree_fini(&watch->tree);
    ct_hang_fini(&watch->hang);
    ct_free(watch->samples);
    ct_free(watch->pages);
    ct_free(watch->has_page);
    ct_free(watch);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free_watch(handle->data);
}

int ct_hang_sampler_start(uv_loop_t *loop, const struct ct_hang_sampler_options *options,
                          struct ct_hang_sampler **out, struct ct_err *err)
{
    size_t workers = (size_t)options->workers;
    struct ct_hang_sampler *watch = ct_calloc(1, sizeof(*watch));
    if (watch == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory to watch the workers");
    }
    watch->options = *options;
    watch->samples = ct_calloc(workers, sizeof(*watch->samples));
    watch->pages = ct_calloc(workers, sizeof(*watch->pages));
    watch->has_page = ct_calloc(workers, sizeof(*watch->has_page));
    if (watch->samples == NULL || watch->pages == NULL || watch->has_page == NULL ||
        ct_hang_init(&watch->hang, options->workers, options->whole_job, options->timeout_ns) !=
            0) {
        free_watch(watch);
        return ct_err_set(err, CT_ENOMEM, "out of memory to watch the workers");
    }
    (void)uv_timer_init(loop, &watch->timer); /* cannot fail */
    watch->timer.data = watch;
    (void)uv_timer_start(&watch->timer, on_timer, period_ms(watch, 0), 0);
    *out = watch;
    return 0;
}

void ct_hang_sampler_reset(struct ct_hang_sampler *watch, int first_rank, bool whole_job)
{
    if (watch != NULL) {
        watch->options.first_rank = first_rank;
        watch->hang.whole_job = whole_job;
        watch->still.kind = CT_HANG_VOTE_NO;
        ct_hang_reset(&watch->hang);
    }
}

void ct_hang_sampler_vote(const struct ct_hang_sampler *watch, struct ct_hang_vote *out)
{
    *out = (struct ct_hang_vote){.kind = CT_HANG_VOTE_NO};
    if (watch != NULL && watch->still.kind != CT_HANG_VOTE_NO) {
        *out = watch->still;
        out->rank += watch->options.first_rank;
    }
}

void ct_hang_sampler_accuse(struct ct_hang_sampler *watch, const struct ct_hang_vote *verdict)
{
    struct ct_hang_verdict own;
    int64_t now = ct_clock_now(NULL);
    int local_rank = verdict->rank - watch->options.first_rank;
    if (watch->still.kind != CT_HANG_VOTE_NO && watch->samples[local_rank].alive) {
        ct_hang_accuse(&watch->hang, local_rank, verdict->kind, now, &own);
        if (own.reason != CT_HANG_NONE) {
            tell(watch, &own, now);
        }
    }
}

void ct_hang_sampler_stop(struct ct_hang_sampler *watch)
{
    if (watch != NULL) {
        watch->stopped = true;
        uv_close((uv_handle_t *)&watch->timer, on_timer_closed);
    }
}
