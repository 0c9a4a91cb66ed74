/* SPDX-License-Identifier: Apache-2.0
 *
 * A column of the curve is one of the losses that fall into it. The lowest of all columns is the
 * smallest block, the highest one the largest.
 */
#include "rendezvous/ctrun-stat/stat_curve.h"

#include "rendezvous/http/page_history.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCKS_MAX 60

/* Columns of the words: a loss has at most 11 characters. */
#define WORDS_COLUMNS (sizeof("loss ") - 1 + (size_t)2 * sizeof(" -1.234e+100"))

/* Sums and differences of such losses are finite. */
#define LOSS_MAX 1e100

static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
#define HIGHEST (sizeof(blocks) / sizeof(blocks[0]) - 1)

_Static_assert(WORDS_COLUMNS + BLOCKS_MAX * (sizeof("▁") - 1) < CT_STAT_CURVE_MAX, "a line fits");

/* NAN = none is told. */
static double loss_of(const cJSON *job)
{
    double loss = (double)NAN, lowest = (double)INFINITY;
    const cJSON *worker;
    cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
    {
        const cJSON *progress = cJSON_GetObjectItemCaseSensitive(worker, "progress");
        double rank = ct_json_number(worker, "rank", (double)INFINITY);
        double told = ct_json_number(progress, "loss", (double)NAN);
        if (fabs(told) <= LOSS_MAX && rank < lowest) {
            lowest = rank;
            loss = told;
        }
    }
    return loss;
}

void ct_stat_curve_add(struct ct_page_history *losses, const struct cJSON *status)
{
    const cJSON *job = ct_status_next_job(status, NULL);
    const struct ct_page_point point = {.loss = loss_of(job)};
    if (!isnan(point.loss) && ct_status_next_job(status, job) == NULL) {
        ct_page_history_add(losses, &point);
    }
}

void ct_stat_curve_print(const struct ct_page_history *losses, size_t columns,
                         char out[CT_STAT_CURVE_MAX])
{
    size_t room = columns > WORDS_COLUMNS ? columns - WORDS_COLUMNS : 0;
    size_t width = losses->count < room ? losses->count : room;
    width = width < BLOCKS_MAX ? width : BLOCKS_MAX;
    out[0] = '\0';
    if (width < 2) {
        return;
    }
    double column[BLOCKS_MAX], low = (double)INFINITY, high = -(double)INFINITY;
    for (size_t i = 0; i < width; i++) {
        column[i] = losses->points[(i + 1) * losses->count / width - 1].loss;
        low = fmin(low, column[i]);
        high = fmax(high, column[i]);
    }
    const size_t highest = HIGHEST;
    size_t len = (size_t)snprintf(out, CT_STAT_CURVE_MAX, "loss %.4g ", losses->points[0].loss);
    for (size_t i = 0; i < width; i++) {
        double share = high > low ? (column[i] - low) / (high - low) : 0;
        const char *block = blocks[(size_t)lround(share * (double)highest)];
        len += (size_t)snprintf(out + len, CT_STAT_CURVE_MAX - len, "%s", block);
    }
    (void)snprintf(out + len, CT_STAT_CURVE_MAX - len, " %.4g", column[width - 1]);
}
