/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares names piece by piece: a run of digits as a number, other characters without regard to
 * case. So gpu-9 comes before gpu-10.
 */
#include "common/host_order.h"

#include <stddef.h>
#include <string.h>

/* Not <ctype.h>: the order must not depend on the locale of the machine that sorts. */
static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int fold(char c)
{
    unsigned char byte = (unsigned char)c;
    return byte >= 'A' && byte <= 'Z' ? byte - 'A' + 'a' : byte;
}

static size_t count_digits(const char *text)
{
    size_t n = 0;
    while (is_digit(text[n])) {
        n++;
    }
    return n;
}

/* Compares two runs of digits and moves both pointers past them. Without leading zeros the longer
 * run is the greater number, so no number has to fit into an integer. */
static int compare_numbers(const char **a, const char **b)
{
    *a += strspn(*a, "0");
    *b += strspn(*b, "0");
    size_t len_a = count_digits(*a), len_b = count_digits(*b);
    int order = len_a != len_b ? (len_a < len_b ? -1 : 1) : memcmp(*a, *b, len_a);
    *a += len_a;
    *b += len_b;
    return order;
}

int ct_host_compare(const char *a, const char *b)
{
    const char *p = a, *q = b;
    while (*p != '\0') { /* the end of q comes before any character */
        int order;
        if (is_digit(*p) && is_digit(*q)) {
            order = compare_numbers(&p, &q);
        } else {
            order = fold(*p++) - fold(*q++);
        }
        if (order != 0) {
            return order;
        }
    }
    return *q != '\0' ? -1 : strcmp(a, b);
}
