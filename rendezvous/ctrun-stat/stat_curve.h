/* SPDX-License-Identifier: Apache-2.0
 *
 * The curve of the loss on the screen of ctrun-stat --watch, made of the answers that have come
 * since the watch began. Pure.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_CURVE_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_CURVE_H

#include <stddef.h>

struct cJSON;
struct ct_page_history;

/* Room for the line, whose blocks take three bytes each. */
#define CT_STAT_CURVE_MAX 256

/* Adds the loss of the lowest rank that tells one. Adds nothing if none does, or if there are
 * several jobs. `status` may be any document. */
void ct_stat_curve_add(struct ct_page_history *losses, const struct cJSON *status);

/* Gives "loss 0.69 ▇▅▃▂▁ 0.12", of the first loss and the last one, in at most `columns`. The text
 * is empty if there is no room for a curve, or fewer than two losses. */
void ct_stat_curve_print(const struct ct_page_history *losses, size_t columns,
                         char out[CT_STAT_CURVE_MAX]);

#endif
