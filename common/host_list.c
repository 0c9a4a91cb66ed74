/* SPDX-License-Identifier: Apache-2.0
 *
 * A line is made of pieces, each for one or several names ("login", "gpu-[3-17", ",20"). A piece is
 * added only if the end of the line, such as " and 7 more", still fits behind it.
 */
#include "common/host_list.h"

#include "common/err.h"
#include "common/host_order.h"
#include "common/ranges.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "], and 65536 more" with room to spare. */
#define END_MAX 24
/* A longer number could overflow, and no machine has one. */
#define DIGITS_MAX 18

struct line {
    char *out;
    size_t size, used;
    size_t kept; /* room for what closes an open bracket */
};

/* Adds a piece. If it does not fit, adds nothing and returns false. */
static bool add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool add(struct line *line, const char *fmt, ...)
{
    size_t taken = line->used + line->kept + END_MAX;
    size_t room = line->size > taken ? line->size - taken : 0;
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(line->out + line->used, room, fmt, args);
    va_end(args);
    bool fits = len >= 0 && (size_t)len < room;
    line->used += fits ? (size_t)len : 0;
    line->out[line->used] = '\0';
    return fits;
}

/* Ends the line with the count of what did not fit. add() has kept room for it. */
static void end(struct line *line, const char *before, int count, const char *behind)
{
    (void)snprintf(line->out + line->used, line->size - line->used, "%s%d%s", before, count,
                   behind);
}

static struct line begin(char *out, size_t size)
{
    CT_ASSERT(size > END_MAX);
    out[0] = '\0';
    return (struct line){.out = out, .size = size};
}

/* ---- numbers -------------------------------------------------------------------------------- */

void ct_number_list_text(const int *numbers, int count, char *out, size_t size)
{
    struct line line = begin(out, size);
    for (int i = 0, last; i < count; i = last + 1) {
        for (last = i; last + 1 < count && numbers[last + 1] == numbers[last] + 1;) {
            last++;
        }
        char range[CT_RANGE_MAX];
        if (!add(&line, "%s%s", i > 0 ? "," : "",
                 ct_range_text(numbers[i], numbers[last], range))) {
            end(&line, i > 0 ? " and " : "", count - i, i > 0 ? " more" : "");
            return;
        }
    }
}

/* ---- names ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    return ct_host_compare(*(const char *const *)a, *(const char *const *)b);
}

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Returns where the number begins in which alone the names differ; SIZE_MAX if there is none. */
static size_t number_at(const char *a, const char *b)
{
    size_t at = 0;
    while (a[at] == b[at] && a[at] != '\0') {
        at++;
    }
    while (at > 0 && a[at - 1] >= '0' && a[at - 1] <= '9') {
        at--;
    }
    size_t in_a = digits(a + at), in_b = digits(b + at);
    bool one = in_a > 0 && in_b > 0 && strcmp(a + at + in_a, b + at + in_b) == 0;
    return one ? at : SIZE_MAX;
}

static int64_t value(const char *text, size_t len)
{
    int64_t number = 0;
    for (size_t i = 0; i < len; i++) {
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

/* Is the number at `b` the next one after that at `a`, as "10" after "9" and after "09"? */
static bool follows(const char *a, const char *b)
{
    size_t in_a = digits(a), in_b = digits(b);
    return in_a <= DIGITS_MAX && in_b <= DIGITS_MAX && value(b, in_b) == value(a, in_a) + 1 &&
           (in_a == in_b || (a[0] != '0' && b[0] != '0'));
}

static bool is_equal(const char **names, int count, int i, int j)
{
    return j < count && strcmp(names[i], names[j]) == 0;
}

/* Counts the names at the beginning of the list that differ only in the number at `at`, up to the
 * first one that occurs twice. */
static int count_alike(const char **names, int count, size_t at)
{
    int alike = 1;
    while (alike < count && number_at(names[0], names[alike]) == at &&
           !is_equal(names, count, alike, alike + 1)) {
        alike++;
    }
    return alike;
}

/* Adds names that count_alike() has counted, as "gpu-[3-17,20]". Returns how many of them fit. */
static int add_alike(struct line *line, const char *comma, const char **names, int count, size_t at)
{
    const char *suffix = names[0] + at + digits(names[0] + at);
    int done = 0;
    bool fits = true;
    line->kept = strlen(suffix) + 1;
    while (fits && done < count) {
        int last = done;
        while (last + 1 < count && follows(names[last] + at, names[last + 1] + at)) {
            last++;
        }
        const char *from = names[done] + at, *to = names[last] + at;
        int in_from = (int)digits(from), in_to = last > done ? (int)digits(to) : 0;
        const char *dash = last > done ? "-" : "";
        fits = done > 0 ? add(line, ",%.*s%s%.*s", in_from, from, dash, in_to, to)
                        : add(line, "%s%.*s[%.*s%s%.*s", comma, (int)at, names[0], in_from, from,
                              dash, in_to, to);
        done = fits ? last + 1 : done;
    }
    line->kept = 0;
    return done > 0 && add(line, "]%s", suffix) ? done : 0;
}

void ct_host_list_text(const char **names, int count, char *out, size_t size)
{
    struct line line = begin(out, size);
    int done = 0;
    qsort(names, (size_t)count, sizeof(*names), compare);
    while (done < count) {
        const char **from = names + done, *comma = done > 0 ? ", " : "";
        int left = count - done, same = 1, took;
        while (is_equal(from, left, 0, same)) {
            same++;
        }
        size_t at = same == 1 && left > 1 ? number_at(from[0], from[1]) : SIZE_MAX;
        int alike = at != SIZE_MAX ? count_alike(from, left, at) : 1;
        if (alike > 1) {
            took = add_alike(&line, comma, from, alike, at);
        } else if (same > 1) {
            took = add(&line, "%s%s (x%d)", comma, from[0], same) ? same : 0;
            alike = same;
        } else {
            took = add(&line, "%s%s", comma, from[0]) ? 1 : 0;
        }
        done += took;
        if (took < alike) {
            end(&line, done > 0 ? ", and " : "", count - done, done > 0 ? " more" : " hosts");
            return;
        }
    }
}
