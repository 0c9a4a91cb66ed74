/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of exit codes, as --no-restart-on gives it: "3,64-78,SIGSEGV".
 */
#ifndef CT_LAUNCHER_UTIL_CODE_SET_H
#define CT_LAUNCHER_UTIL_CODE_SET_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Zeroed memory is the empty set. */
struct ct_code_set {
    uint64_t bits[4];
};

bool ct_code_set_has(const struct ct_code_set *set, int code);

/* Reads codes from 1 to 255, ranges of them, and names of signals, between commas. A signal stands
 * for 128 + its number, which is also what a shell exits with when the signal killed its program.
 * CT_EINVAL: the text names the part that is wrong. Gives *out. */
CT_MUST_CHECK int ct_code_set_parse(const char *text, struct ct_code_set *out, struct ct_err *err);

#endif
