/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample of a rank that works adds the time since the last sample to its work. At the end of a
 * window the shares are compared, and the next window begins.
 *
 * A window is thrown away after a pause in sampling, and when a rank has ended or begun: the shares
 * would be of different times.
 */
#include "launcher/hang/slow.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <string.h>

/* Samples come each second or faster. A longer pause, as when the machine was suspended, says
 * nothing about the ranks. */
#define PAUSE_NS (3 * CT_NS_PER_S)
/* A rank that works for less than half of the time is not what all others wait for. */
#define LEAST_PERCENT 50
/* A smaller share counts as this one, because so few samples mean little. */
#define FLOOR_PERCENT 2

struct ct_slow_rank {
    bool alive, has_page;
    int64_t step;   /* at the beginning of the window */
    int64_t cpu_ns; /* of the last sample; -1 = not known */
    int64_t work_ns;
    bool stepped;
};

int ct_slow_init(struct ct_slow *slow, int ranks, double factor)
{
    struct ct_slow_rank *rank = ct_calloc((size_t)ranks, sizeof(*rank));
    if (rank == NULL) {
        return CT_ENOMEM;
    }
    *slow = (struct ct_slow){.ranks = ranks, .factor = factor, .candidate = -1, .rank = rank};
    return 0;
}

void ct_slow_fini(struct ct_slow *slow)
{
    ct_free(slow->rank);
    *slow = (struct ct_slow){0};
}

void ct_slow_reset(struct ct_slow *slow)
{
    slow->told = false;
    slow->candidate = -1;
    slow->windows = slow->percent = slow->others_percent = 0;
    slow->begun_ns = 0;
}

static void begin_window(struct ct_slow *slow, const struct ct_hang_sample *samples, int64_t now)
{
    slow->begun_ns = slow->last_ns = now;
    for (int i = 0; i < slow->ranks; i++) {
        slow->rank[i] = (struct ct_slow_rank){
            .alive = samples[i].alive,
            .has_page = samples[i].has_page,
            .step = samples[i].page.step,
            .cpu_ns = samples[i].cpu_ns,
        };
    }
}

static bool fits_window(const struct ct_slow *slow, const struct ct_hang_sample *samples,
                        int64_t now)
{
    bool fits = slow->begun_ns != 0 && now - slow->last_ns <= PAUSE_NS;
    for (int i = 0; fits && i < slow->ranks; i++) {
        fits = slow->rank[i].alive == samples[i].alive &&
               slow->rank[i].has_page == samples[i].has_page &&
               (samples[i].has_page || !samples[i].alive ||
                (samples[i].cpu_ns >= 0 && slow->rank[i].cpu_ns >= 0));
    }
    return fits;
}

static void take_sample(struct ct_slow_rank *rank, const struct ct_hang_sample *sample,
                        int64_t passed_ns)
{
    enum ct_phase phase = sample->page.phase;
    if (sample->has_page) {
        bool works = phase != CT_PHASE_COLLECTIVE && phase != CT_PHASE_CHECKPOINT;
        rank->work_ns += works ? passed_ns : 0;
        rank->stepped = rank->stepped || sample->page.step != rank->step;
        return;
    }
    /* It is less than before if a child has ended. */
    int64_t used = sample->cpu_ns > rank->cpu_ns ? sample->cpu_ns - rank->cpu_ns : 0;
    rank->work_ns += used < passed_ns ? used : passed_ns;
    rank->cpu_ns = sample->cpu_ns;
    rank->stepped = true;
}

static int percent_of(const struct ct_slow *slow, int rank)
{
    return (int)(slow->rank[rank].work_ns * 100 / (slow->last_ns - slow->begun_ns));
}

/* The median share of the living ranks but one; -1 = there are none. */
static int median_of_others(const struct ct_slow *slow, int except)
{
    int at[101] = {0}, count = 0, seen = 0;
    for (int i = 0; i < slow->ranks; i++) {
        if (i != except && slow->rank[i].alive) {
            at[percent_of(slow, i)]++;
            count++;
        }
    }
    for (int percent = 0; percent <= 100 && count > 0; percent++) {
        seen += at[percent];
        if (2 * seen >= count) {
            return percent;
        }
    }
    return -1;
}

/* Judges a window. Returns the slow rank, or -1. */
static int judge(const struct ct_slow *slow, struct ct_slow_verdict *out)
{
    int most = -1;
    for (int i = 0; i < slow->ranks; i++) {
        if (!slow->rank[i].alive) {
            continue;
        }
        if (!slow->rank[i].stepped) {
            return -1;
        }
        if (most < 0 || percent_of(slow, i) > percent_of(slow, most)) {
            most = i;
        }
    }
    int others = most >= 0 ? median_of_others(slow, most) : -1;
    if (others < 0) {
        return -1;
    }
    out->percent = percent_of(slow, most);
    out->others_percent = others;
    double floor = others > FLOOR_PERCENT ? others : FLOOR_PERCENT;
    return out->percent >= LEAST_PERCENT && out->percent >= slow->factor * floor ? most : -1;
}

void ct_slow_step(struct ct_slow *slow, const struct ct_hang_sample *samples, int64_t now_ns,
                  struct ct_slow_verdict *out)
{
    *out = (struct ct_slow_verdict){.local_rank = -1};
    if (slow->factor <= 0 || slow->told) {
        return;
    }
    if (!fits_window(slow, samples, now_ns)) {
        begin_window(slow, samples, now_ns);
        slow->candidate = -1;
        return;
    }
    for (int i = 0; i < slow->ranks; i++) {
        if (samples[i].alive) {
            take_sample(&slow->rank[i], &samples[i], now_ns - slow->last_ns);
        }
    }
    slow->last_ns = now_ns;
    if (now_ns - slow->begun_ns < CT_SLOW_WINDOW_NS) {
        return;
    }
    int found = judge(slow, out);
    if (found != slow->candidate) {
        slow->windows = slow->percent = slow->others_percent = 0;
    }
    slow->candidate = found;
    slow->windows++;
    slow->percent += out->percent;
    slow->others_percent += out->others_percent;
    if (found >= 0 && slow->windows == CT_SLOW_WINDOWS) {
        *out = (struct ct_slow_verdict){.local_rank = found,
                                        .percent = slow->percent / CT_SLOW_WINDOWS,
                                        .others_percent = slow->others_percent / CT_SLOW_WINDOWS};
        slow->told = true;
    }
    begin_window(slow, samples, now_ns);
}
