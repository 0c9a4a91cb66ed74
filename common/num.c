/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict parsing. The text is checked before it is converted, the range afterwards.
 */
#include "common/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int ct_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out)
{
    bool negative = text[0] == '-';
    const char *p = negative ? text + 1 : text;
    if (*p == '\0') {
        return CT_EFORMAT;
    }
    /* The value is built as a negative number, because INT64_MIN has no positive counterpart. */
    int64_t value = 0;
    bool overflow = false;
    for (; *p != '\0'; p++) {
        if (*p < '0' || *p > '9') {
            return CT_EFORMAT;
        }
        overflow = overflow || __builtin_mul_overflow(value, 10, &value) ||
                   __builtin_sub_overflow(value, *p - '0', &value);
    }
    if (overflow || (!negative && value == INT64_MIN)) {
        return CT_ELIMIT;
    }
    value = negative ? value : -value;
    if (value < min || value > max) {
        return CT_ELIMIT;
    }
    *out = value;
    return 0;
}

int ct_parse_int(const char *text, int min, int max, int *out)
{
    int64_t wide;
    int rc = ct_parse_i64(text, min, max, &wide);
    if (rc == 0) {
        *out = (int)wide;
    }
    return rc;
}

int ct_parse_double(const char *text, double min, double max, double *out)
{
    /* strtod(3) would also accept blanks, "nan", "inf" and hexadecimal numbers. */
    if (text[0] == '\0' || text[0] == '+' || text[strspn(text, "0123456789+-.eE")] != '\0') {
        return CT_EFORMAT;
    }
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0') {
        return CT_EFORMAT;
    }
    if (!isfinite(value) || value < min || value > max) {
        return CT_ELIMIT;
    }
    *out = value;
    return 0;
}

bool ct_mul_size(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *out = product;
    return true;
}

bool ct_add_size(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        return false;
    }
    *out = sum;
    return true;
}
