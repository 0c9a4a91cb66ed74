/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers of values that several options share or that have a grammar of their own.
 */
#ifndef CT_LAUNCHER_CLI_OPTION_VALUES_H
#define CT_LAUNCHER_CLI_OPTION_VALUES_H

#include "common/err.h"
#include "rendezvous/control/restarts.h"

#include <stdint.h>

/* Longer than any number that is in range. */
#define CT_OPTION_NUMBER_MAX 64

/* Takes off blanks around a number, as Python's int() and float() and so torchrun do. Returns
 * `out`, or a part of `value` if no blanks follow or the number does not fit. */
const char *ct_option_trim(const char *value, char out[CT_OPTION_NUMBER_MAX]);

/* *out gets the index of `value` in `words`, which end with NULL. CT_EINVAL: it is none of them;
 * the text names them all. */
CT_MUST_CHECK int ct_option_word(const char *origin, const char *value, const char *const *words,
                                 int *out, struct ct_err *err);

/* Seconds, also with a fraction, or "off" (0), in milliseconds. CT_EINVAL. */
CT_MUST_CHECK int ct_option_hang_stacks(const char *origin, const char *value, int *out,
                                        struct ct_err *err);

/* "N/TIME": restarts in a window. A time without a unit is in hours; units are s, m, h and d.
 * CT_EINVAL. */
CT_MUST_CHECK int ct_option_restart_budget(const char *origin, const char *value,
                                           struct ct_restart_limits *out, struct ct_err *err);

/* --warm-import: "auto", or names of modules with commas between them. Borrows. CT_EINVAL. */
CT_MUST_CHECK int ct_option_warm_import(const char *origin, const char *value, const char **out,
                                        struct ct_err *err);

/* A number of at least 1.5, or "off" (0). CT_EINVAL. */
CT_MUST_CHECK int ct_option_slow_factor(const char *origin, const char *value, double *out,
                                        struct ct_err *err);

/* Seconds, also with a fraction, "auto" (0) or "off" (-1), in nanoseconds. CT_EINVAL. */
CT_MUST_CHECK int ct_option_hang_timeout(const char *origin, const char *value, int64_t *out,
                                         struct ct_err *err);

#endif
