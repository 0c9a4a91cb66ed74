/* SPDX-License-Identifier: Apache-2.0
 *
 * The line says only what is known. A program that writes no progress page gets the state and the
 * number of its workers; before the first step the line says what is awaited. The parts stand in
 * the order of their importance, and the last ones are left out on a narrow terminal.
 */
#include "launcher/output/live_line.h"

#include "common/clock.h"
#include "common/text.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BEGIN "ctrun: "
#define PART_MAX 320

/* A rank is named when it is so many steps behind the first. Ranks that take turns in one step are
 * one step apart. */
#define BEHIND_MIN 2
/* Or when all others have waited for it for so long. */
#define WAIT_MIN_NS (2 * CT_NS_PER_S)

/* ---- what the pages say --------------------------------------------------------------------- */

/* Finds the rank that the others wait for, by steps or within the step. */
static void find_slowest(const struct ct_progress *pages, const bool *valid, int count,
                         int64_t now_ns, struct ct_live_facts *facts)
{
    int last = -1, outside = 0, busy = -1;
    for (int i = 0; i < count; i++) {
        if (!valid[i]) {
            continue;
        }
        if (last < 0 || pages[i].step < pages[last].step) {
            last = i;
        }
        if (pages[i].phase != CT_PHASE_COLLECTIVE) {
            outside++;
            busy = i;
        }
    }
    if (facts->reporting < 2) {
        return;
    }
    bool late = facts->step - pages[last].step >= BEHIND_MIN;
    bool awaited = outside == 1 && now_ns - pages[busy].stamp_ns >= WAIT_MIN_NS;
    if (late || awaited) {
        int at = late ? last : busy;
        facts->slowest = facts->first_rank + at;
        facts->behind = facts->step - pages[at].step;
        facts->slowest_for_ns = now_ns - pages[at].stamp_ns;
    }
}

/* The time to the end at the mean speed of the process since its first step. */
static double time_left(const struct ct_progress *page)
{
    int64_t left = page->total - page->step;
    int64_t ns = page->stamp_ns - page->first_ns;
    if (page->total <= 0 || page->first_ns == 0 || page->turns < 2 || ns <= 0) {
        return (double)NAN;
    }
    return left > 0 ? (double)left * (double)ns / ((double)page->turns - 1) / CT_NS_PER_S : 0;
}

void ct_live_line_progress(const struct ct_progress *pages, const bool *valid, int count,
                           int64_t now_ns, struct ct_live_facts *facts)
{
    facts->reporting = 0;
    facts->stepped = false;
    facts->step = facts->total = facts->behind = 0;
    facts->loss = facts->rate = facts->eta_s = (double)NAN;
    facts->slowest = -1;
    for (int i = 0; i < count; i++) {
        const struct ct_progress *page = &pages[i];
        if (!valid[i]) {
            continue;
        }
        facts->reporting++;
        facts->stepped = facts->stepped || page->turns > 0;
        facts->step = page->step > facts->step ? page->step : facts->step;
        facts->total = page->total > facts->total ? page->total : facts->total;
        /* The values of the lowest rank that tells them: they are mostly those of the whole job. */
        facts->loss = isfinite(facts->loss) ? facts->loss : page->loss;
        facts->rate = isfinite(facts->rate) ? facts->rate : page->rate;
        /* The job ends with its last rank; fmax() passes over a rank that does not tell. */
        facts->eta_s = fmax(facts->eta_s, time_left(page));
    }
    find_slowest(pages, valid, count, now_ns, facts);
}

/* ---- the text ------------------------------------------------------------------------------- */

struct line {
    char *out;
    size_t columns, used, len;
};

static void add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends a part if it fits; the first part is cut instead. */
static void add(struct line *line, const char *fmt, ...)
{
    char part[PART_MAX], clean[PART_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(part, sizeof(part), fmt, args);
    va_end(args);
    const char *comma = line->len > 0 ? ", " : "";
    size_t room = line->columns - line->used;
    size_t wide = strlen(comma) + ct_text_fit(part, PART_MAX, clean, sizeof(clean));
    if (line->len > 0 && (wide > room || line->len + PART_MAX + 2 > CT_LIVE_LINE_MAX)) {
        line->columns = line->used; /* a less important part does not take its place */
        return;
    }
    if (line->len == 0) {
        wide = ct_text_fit(part, room, clean, sizeof(clean));
    }
    line->len +=
        (size_t)snprintf(line->out + line->len, CT_LIVE_LINE_MAX - line->len, "%s%s", comma, clean);
    line->used += wide;
}

static const char *duration(double seconds, char out[32])
{
    if (seconds < 100) {
        (void)snprintf(out, 32, "%.0f s", seconds);
    } else if (seconds < 6000) {
        (void)snprintf(out, 32, "%.0f min", seconds / 60);
    } else {
        (void)snprintf(out, 32, "%.1f h", seconds / 3600);
    }
    return out;
}

static const char *rate(double value, char out[32])
{
    if (value < 9999.5) { /* beyond it four digits would be written as 1e+04 */
        (void)snprintf(out, 32, "%.4g", value);
    } else if (value < 1e6) {
        (void)snprintf(out, 32, "%.0fk", value / 1e3);
    } else {
        (void)snprintf(out, 32, "%.4gM", value / 1e6);
    }
    return out;
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void add_slowest(struct line *line, const struct ct_live_facts *facts)
{
    char text[32];
    if (facts->behind > 0) {
        add(line, "rank %d is %lld step%s behind", facts->slowest, (long long)facts->behind,
            plural(facts->behind));
    } else {
        add(line, "the others wait for rank %d for %s", facts->slowest,
            duration((double)facts->slowest_for_ns / CT_NS_PER_S, text));
    }
}

static void add_failures(struct line *line, const struct ct_live_facts *facts)
{
    if (facts->alive < facts->workers && facts->state == CT_LIVE_RUNNING) {
        add(line, "%d of %d workers run", facts->alive, facts->workers);
    }
    if (facts->max_restarts > 0 && facts->restarts > 0) {
        add(line, facts->max_restarts < INT_MAX ? "restart %d of %d" : "restart %d",
            facts->restarts, facts->max_restarts);
    }
}

/* While all wait for one rank, that comes first, and the speed and the time left are those of a job
 * that goes on. */
static void add_steps(struct line *line, const struct ct_live_facts *facts)
{
    char step[CT_TEXT_THOUSANDS_MAX], total[CT_TEXT_THOUSANDS_MAX], text[32];
    ct_text_thousands((uint64_t)facts->step, step);
    ct_text_thousands((uint64_t)facts->total, total);
    bool of = facts->total >= facts->step && facts->total > 0;
    bool slow = facts->slowest >= 0, goes_on = !slow || facts->behind > 0;
    add(line, BEGIN "step %s%s%s", step, of ? " of " : "", of ? total : "");
    if (slow) {
        add_slowest(line, facts);
        add_failures(line, facts);
    }
    if (isfinite(facts->loss)) {
        add(line, "loss %.4g", facts->loss);
    }
    if (isfinite(facts->rate) && facts->rate >= 0 && goes_on) {
        add(line, "%s samples/s", rate(facts->rate, text));
    }
    if (isfinite(facts->eta_s) && goes_on) {
        add(line, "%s left", duration(facts->eta_s, text));
    }
    if (!slow) {
        add_failures(line, facts);
    }
}

void ct_live_line(const struct ct_live_facts *facts, size_t columns, char out[CT_LIVE_LINE_MAX])
{
    struct line line = {.out = out, .columns = columns};
    char time[32];
    int n = facts->alive;
    out[0] = '\0';
    (void)duration((double)facts->for_ns / CT_NS_PER_S, time);
    switch (facts->state) {
    case CT_LIVE_JOINING:
        if (facts->awaited != NULL && facts->awaited[0] != '\0') {
            add(&line, BEGIN "%s (%s)", facts->awaited, time);
        } else {
            add(&line, BEGIN "waiting for the job to begin (%s)", time);
        }
        break;
    case CT_LIVE_STARTING:
        add(&line, BEGIN "starting %d worker%s (%s)", facts->workers, plural(facts->workers), time);
        break;
    case CT_LIVE_STOPPING:
        add(&line, BEGIN "stopping %d worker%s (%s)", n, plural(n), time);
        break;
    case CT_LIVE_RUNNING:
        if (facts->stepped) {
            add_steps(&line, facts);
            return;
        }
        if (facts->reporting > 0) {
            add(&line, BEGIN "%d worker%s, waiting for the first step (%s)", n, plural(n), time);
        } else {
            add(&line, BEGIN "%d worker%s running for %s", n, n == 1 ? "" : "s", time);
        }
        break;
    }
    add_failures(&line, facts);
}
