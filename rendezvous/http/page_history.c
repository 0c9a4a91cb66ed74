/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds samples to points and merges points. Nothing here can fail; the buffer that is printed into
 * remembers when memory is out.
 */
#include "rendezvous/http/page_history.h"

#include <inttypes.h>
#include <math.h>

/* The mean of two groups of samples; a group that does not know the value does not count. */
static double mean(double a, unsigned weight_a, double b, unsigned weight_b)
{
    if (isnan(a) || isnan(b)) {
        return isnan(a) ? b : a;
    }
    return a + (b - a) * weight_b / (weight_a + weight_b);
}

static void merge(struct ct_page_point *into, unsigned weight, const struct ct_page_point *from,
                  unsigned from_weight)
{
    into->loss = mean(into->loss, weight, from->loss, from_weight);
    into->rate = mean(into->rate, weight, from->rate, from_weight);
    into->collective = mean(into->collective, weight, from->collective, from_weight);
    into->memory = mean(into->memory, weight, from->memory, from_weight);
    into->most_memory = fmax(into->most_memory, from->most_memory); /* NAN counts as missing */
    /* A restart sets the step back, so the later step counts. */
    into->step = from->step;
    into->generation = from->generation > into->generation ? from->generation : into->generation;
    into->running = from->running;
    into->missing = from->missing > into->missing ? from->missing : into->missing;
    into->t_s = from->t_s;
}

static void merge_neighbours(struct ct_page_history *history)
{
    for (unsigned i = 0; i < CT_PAGE_POINTS / 2; i++) {
        struct ct_page_point point = history->points[(size_t)2 * i];
        merge(&point, 1, &history->points[(size_t)2 * i + 1], 1);
        history->points[i] = point;
    }
    history->count = CT_PAGE_POINTS / 2;
    history->each *= 2;
    history->merges++;
}

void ct_page_history_add(struct ct_page_history *history, const struct ct_page_point *sample)
{
    history->each = history->each > 0 ? history->each : 1;
    if (history->pending > 0 && history->pending < history->each) {
        merge(&history->points[history->count - 1], history->pending, sample, 1);
        history->pending++;
        return;
    }
    if (history->count == CT_PAGE_POINTS) {
        merge_neighbours(history);
    }
    history->points[history->count++] = *sample;
    history->pending = 1;
}

static void put_real(struct ct_buf *out, double value)
{
    if (isfinite(value)) {
        ct_buf_addf(out, ",%.6g", value);
    } else {
        ct_buf_add(out, ",null", 5);
    }
}

void ct_page_history_print(const struct ct_page_history *history, unsigned from, struct ct_buf *out)
{
    ct_buf_add(out, "[", 1);
    for (unsigned i = from; i < history->count; i++) {
        const struct ct_page_point *point = &history->points[i];
        ct_buf_addf(out, "%s[%.3f,%d,%" PRId64, i > from ? "," : "", point->t_s, point->generation,
                    point->step);
        put_real(out, point->loss);
        put_real(out, point->rate);
        put_real(out, point->collective);
        ct_buf_addf(out, ",%d,%d", point->running, point->missing);
        put_real(out, point->memory);
        put_real(out, point->most_memory);
        ct_buf_add(out, "]", 1);
    }
    ct_buf_add(out, "]", 1);
}
