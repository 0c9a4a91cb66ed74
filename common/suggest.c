/* SPDX-License-Identifier: Apache-2.0
 *
 * The distance of two words is the number of typing errors between them: a letter left out, one too
 * many, a wrong one, or two neighbours swapped (optimal string alignment). Upper and lower case are
 * the same, and so are dashes and underscores. At most a third of a word's letters, and at most
 * three, may be wrong. A word that differs in more is rarely the one that was meant.
 */
#include "common/suggest.h"

#include <string.h>

#define ERRORS_MAX 3

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Not <ctype.h>: what is suggested must not depend on the locale. */
static char fold(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (char)(c - 'A' + 'a');
    }
    return c == '_' ? '-' : c;
}

/* The distance of two words of at most CT_SUGGEST_MAX_LEN letters. Row i holds the distances of the
 * first i letters of `a` to every beginning of `b`. Three rows are enough, because a swap looks two
 * rows back. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][CT_SUGGEST_MAX_LEN + 1];
    for (size_t j = 0; j <= b_len; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            char x = fold(a[i - 1]), y = fold(b[j - 1]);
            row[j] = min_size(min_size(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == fold(b[j - 2]) && fold(a[i - 2]) == y) {
                row[j] = min_size(row[j], two_above[j - 2] + 1);
            }
        }
    }
    return rows[a_len % 3][b_len];
}

struct ct_suggestion ct_suggestion_for(const char *typed, size_t len)
{
    return (struct ct_suggestion){
        .typed = typed, .len = len, .distance = min_size(len / 3, ERRORS_MAX) + 1};
}

void ct_suggestion_offer(struct ct_suggestion *s, const char *name)
{
    size_t len = strlen(name);
    if (s->len > CT_SUGGEST_MAX_LEN || len > CT_SUGGEST_MAX_LEN) {
        return;
    }
    size_t d = distance(s->typed, s->len, name, len);
    if (d < s->distance) {
        s->distance = d;
        s->name = name;
    }
}
