/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the known name that is nearest to a mistyped one, for "did you mean --max-restarts?".
 *
 *     struct ct_suggestion s = ct_suggestion_for(typed, len);
 *     for each known name: ct_suggestion_offer(&s, name);
 *     if (s.name != NULL) ...
 */
#ifndef CT_COMMON_SUGGEST_H
#define CT_COMMON_SUGGEST_H

#include <stddef.h>

/* Longer words get no suggestion. It is also the limit of the names that are offered. */
#define CT_SUGGEST_MAX_LEN 64

struct ct_suggestion {
    const char *name; /* the nearest name that was offered; NULL = none is near enough */
    const char *typed;
    size_t len;      /* of `typed` */
    size_t distance; /* of `name`; without a name, the smallest distance that is too far */
};

/* `typed` is the word without its leading dashes and without "=value"; it is borrowed. */
struct ct_suggestion ct_suggestion_for(const char *typed, size_t len);

/* `name` is borrowed. Of names that are equally near, the one offered first stays. */
void ct_suggestion_offer(struct ct_suggestion *s, const char *name);

#endif
