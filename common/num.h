/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict numbers: the whole string must be the number, in range, with no blanks. What atoi, strtol
 * and strtod accept silently ("12abc", " 7", "", "0x1p3", overflow) is refused here.
 */
#ifndef CT_COMMON_NUM_H
#define CT_COMMON_NUM_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal integer with optional '-'. 0, CT_EFORMAT (not a number) or CT_ELIMIT (out of range). */
CT_MUST_CHECK int ct_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out);

/* As above into an int. */
CT_MUST_CHECK int ct_parse_int(const char *text, int min, int max, int *out);

/* Finite decimal number such as 0.1, 1e-3, -2. Refuses nan, inf, hexadecimal, a leading '+'. */
CT_MUST_CHECK int ct_parse_double(const char *text, double min, double max, double *out);

/* False when the result does not fit; *out is then untouched. */
bool ct_mul_size(size_t a, size_t b, size_t *out);
bool ct_add_size(size_t a, size_t b, size_t *out);

#endif
