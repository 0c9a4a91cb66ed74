/* SPDX-License-Identifier: Apache-2.0
 *
 * How values of options are read that more than one option has in common, or that have a grammar of
 * their own.
 */
#ifndef CT_LAUNCHER_CLI_OPTION_VALUES_H
#define CT_LAUNCHER_CLI_OPTION_VALUES_H

#include "common/err.h"

#include <stdint.h>

/* Longer than a number that is in any range. */
#define CT_OPTION_NUMBER_MAX 64

/* Python's int() and float() pass over blanks around a number, so torchrun does. Gives `value`
 * without them: in `out`, or `value` itself where there are none or where it does not fit. */
const char *ct_option_trim(const char *value, char out[CT_OPTION_NUMBER_MAX]);

/* `words` ends with NULL. *out gets the index of the one that `value` is; else the text names them
 * all. CT_EINVAL. */
CT_MUST_CHECK int ct_option_word(const char *origin, const char *value, const char *const *words,
                                 int *out, struct ct_err *err);

/* Seconds, also with a fraction, "auto" (0) or "off" (-1), in nanoseconds. CT_EINVAL. */
CT_MUST_CHECK int ct_option_hang_timeout(const char *origin, const char *value, int64_t *out,
                                         struct ct_err *err);

#endif
