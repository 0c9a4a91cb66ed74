/* SPDX-License-Identifier: Apache-2.0
 *
 * Brackets are expanded by recursion: each number of a range is appended to the name, and the rest
 * of the text follows with one level more. The depth and the number of names are bounded, because
 * the text comes from the environment.
 */
#include "launcher/util/nodelist.h"

#include "common/addr.h"
#include "common/num.h"
#include "rendezvous/control/control.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Slurm itself takes no more dimensions than this. */
#define BRACKETS_MAX 8
/* Digits of one number: what fits an int64_t with room to spare. */
#define DIGITS_MAX 15

/* A name under construction. The text behind `len` is no part of it. */
struct name {
    char text[CT_HOST_MAX];
    size_t len;
};

struct list {
    const char *whole; /* for messages */
    struct ct_strlist *out;
    struct ct_err *err;
};

static int bad(const struct list *list, const char *what)
{
    return ct_err_set(list->err, CT_EFORMAT, "'%.200s' is no list of hosts: %s", list->whole, what);
}

static int append(const struct list *list, struct name *name, const char *text, size_t len)
{
    if (len >= sizeof(name->text) - name->len) {
        return ct_err_set(list->err, CT_ELIMIT,
                          "'%.200s': a host's name is longer than %d characters", list->whole,
                          CT_HOST_MAX - 1);
    }
    memcpy(name->text + name->len, text, len);
    name->len += len;
    return 0;
}

static int emit(const struct list *list, const struct name *name)
{
    if (name->len == 0) {
        return bad(list, "a name is empty");
    }
    if (list->out->count == CT_MAX_NODES) {
        return ct_err_set(list->err, CT_ELIMIT, "'%.200s' names more than %d hosts", list->whole,
                          CT_MAX_NODES);
    }
    return ct_strlist_printf(list->out, "%.*s", (int)name->len, name->text) == 0
               ? 0
               : ct_err_set(list->err, CT_ENOMEM, "out of memory for the list of hosts");
}

/* Reads a run of digits. *width gets its length, because names keep leading zeros. */
static int read_number(const struct list *list, const char **at, int64_t *number, int *width)
{
    size_t len = strspn(*at, "0123456789");
    if (len == 0 || len > DIGITS_MAX) {
        return bad(list, "a number is missing or too long in a bracket");
    }
    *width = (int)len;
    *number = 0;
    for (size_t i = 0; i < len; i++) {
        *number = *number * 10 + *(*at)++ - '0';
    }
    return 0;
}

static int expand_from(const struct list *list, const char *at, const char *end, struct name *name,
                       int depth);

/* Expands one entry of a bracket, "7" or "007-015". `rest` is the text behind the bracket. */
static int expand_range(const struct list *list, const char **at, const char *rest, const char *end,
                        struct name *name, int depth)
{
    int64_t low = 0;
    int width = 0, ignored;
    int rc = read_number(list, at, &low, &width);
    int64_t high = low;
    if (rc == 0 && **at == '-') {
        ++*at;
        rc = read_number(list, at, &high, &ignored);
    }
    if (rc == 0 && (high < low || high - low >= CT_MAX_NODES)) {
        rc = bad(list, "a range runs backwards or is too long");
    }
    for (int64_t number = low; rc == 0 && number <= high; number++) {
        char digits[32];
        size_t len = name->len;
        int count = snprintf(digits, sizeof(digits), "%0*lld", width, (long long)number);
        rc = append(list, name, digits, (size_t)count);
        if (rc == 0) {
            rc = expand_from(list, rest, end, name, depth + 1);
        }
        name->len = len;
    }
    return rc;
}

/* Emits every name that begins with `name` and goes on with the text from `at` to `end`. */
static int expand_from(const struct list *list, const char *at, const char *end, struct name *name,
                       int depth)
{
    const char *open = memchr(at, '[', (size_t)(end - at));
    size_t len = name->len;
    int rc = append(list, name, at, (size_t)((open != NULL ? open : end) - at));
    if (rc != 0) {
        return rc;
    }
    if (open == NULL) {
        rc = emit(list, name);
        name->len = len;
        return rc;
    }
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (close == NULL || depth == BRACKETS_MAX) {
        return bad(list, close == NULL ? "a bracket is not closed" : "too many brackets");
    }
    for (at = open + 1; rc == 0; at++) {
        rc = expand_range(list, &at, close + 1, end, name, depth);
        if (rc == 0 && at >= close) {
            break;
        }
        if (rc == 0 && *at != ',') {
            rc = bad(list, "a bracket holds more than numbers and ranges");
        }
    }
    name->len = len;
    return rc;
}

/* Returns the end of the item that begins at `at`: a comma outside of brackets, or the end of the
 * text. NULL: a bracket or a blank is misplaced. */
static const char *item_end(const char *at)
{
    bool inside = false;
    for (; *at != '\0' && (inside || *at != ','); at++) {
        if ((unsigned char)*at <= ' ' || *at == 0x7f || (*at == ']' && !inside) ||
            (*at == '[' && inside)) {
            return NULL;
        }
        inside = *at == '[' || (inside && *at != ']');
    }
    return at;
}

int ct_nodelist_expand(const char *text, struct ct_strlist *out, struct ct_err *err)
{
    struct ct_strlist names = {0};
    const struct list list = {text, &names, err};
    int rc = 0;
    for (const char *at = text; rc == 0;) {
        const char *end = item_end(at);
        if (end == NULL) {
            rc = bad(&list, "a bracket or a blank is where none may be");
            break;
        }
        struct name name = {.len = 0};
        rc = expand_from(&list, at, end, &name, 0);
        if (*end == '\0') {
            break;
        }
        at = end + 1;
    }
    if (rc == 0 && ct_strlist_close(&names) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory for the list of hosts");
    }
    if (rc != 0) {
        ct_strlist_fini(&names);
        return rc;
    }
    *out = names;
    return 0;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static bool read_count(const char **at, int *out)
{
    char digits[12];
    size_t len = strspn(*at, "0123456789");
    if (len == 0 || len >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, *at, len);
    digits[len] = '\0';
    *at += len;
    return ct_parse_int(digits, 1, INT_MAX, out) == 0;
}

int ct_nodelist_count(const char *text, int index, int *out, struct ct_err *err)
{
    int64_t first = 0; /* index of the entry that is read */
    int found = 0;
    for (const char *at = text;; at++) {
        int count, times = 1;
        bool good = read_count(&at, &count);
        if (good && strncmp(at, "(x", 2) == 0) {
            at += 2;
            good = read_count(&at, &times) && *at == ')';
            at++;
        }
        if (!good || (*at != ',' && *at != '\0')) {
            return ct_err_set(err, CT_EFORMAT, "'%.200s' is no list of counts such as 2(x3),1",
                              text);
        }
        if (found == 0 && index < first + times) {
            found = count;
        }
        first += times;
        if (*at == '\0') {
            break;
        }
    }
    if (found == 0) {
        return ct_err_set(err, CT_ENOENT, "'%.200s' says nothing about node %d", text, index);
    }
    *out = found;
    return 0;
}
