/* SPDX-License-Identifier: Apache-2.0
 *
 * Which streams of which workers go to a file: the grammar of torchrun's -r and -t.
 *
 *     0 none, 1 stdout, 2 stderr, 3 both: one digit for all ranks, or "RANK:DIGIT,RANK:DIGIT,..."
 *     with one-digit ranks, where a rank that is not listed has none.
 */
#ifndef CT_LAUNCHER_CLI_REDIRECTS_H
#define CT_LAUNCHER_CLI_REDIRECTS_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum ct_streams {
    CT_STREAMS_NONE = 0,
    CT_STREAMS_STDOUT = 1,
    CT_STREAMS_STDERR = 2,
    CT_STREAMS_BOTH = CT_STREAMS_STDOUT | CT_STREAMS_STDERR,
};

/* The grammar has one-digit ranks only. */
#define CT_REDIRECTS_MAPPED 10

/* Zeroed memory means "none for all". */
struct ct_redirects {
    uint8_t all;                         /* for every rank that `mapped` does not decide */
    uint8_t mapped[CT_REDIRECTS_MAPPED]; /* meaningful only if has_map; then `all` is 0 */
    bool has_map;
};

/* CT_EFORMAT with the grammar in the text. A rank that is listed twice has its last value. */
CT_MUST_CHECK int ct_redirects_parse(const char *text, struct ct_redirects *out,
                                     struct ct_err *err);

/* The CT_STREAMS_* bits of a local rank. */
unsigned ct_redirects_of(const struct ct_redirects *redirects, int local_rank);

/* Does any rank have any? */
bool ct_redirects_any(const struct ct_redirects *redirects);

#endif
