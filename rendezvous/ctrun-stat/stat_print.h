/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes an answer of the store to standard output, in the form that the options ask for.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_PRINT_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_PRINT_H

#include "common/err.h"
#include "rendezvous/ctrun-stat/stat_options.h"

#include <stddef.h>

struct cJSON;
struct ct_job_entry;

/* The columns of the terminal that the descriptor is, or `otherwise`. */
size_t ct_stat_print_columns(int fd, size_t otherwise);

/* The columns of a table that goes there: CT_STAT_COLUMNS at least, or `otherwise`. */
size_t ct_stat_print_table_columns(int fd, size_t otherwise);

/* Writes the text. CT_EIO, CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_print_text(const char *text, struct ct_err *err);

/* Writes the read key of the job with this token. CT_EINVAL: it is NULL. CT_EIO, CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_print_read_key(const struct ct_token *token, struct ct_err *err);

/* Writes to standard error which jobs there are, since one of them must be named. */
void ct_stat_print_choices(const struct ct_job_entry *entries, int count);

/* `where` is the address of the store. CT_EIO (nothing can be written), CT_ENOMEM, what asking
 * for stacks returned, or CT_ENOENT if that gave none; then what came is written, too. */
CT_MUST_CHECK int ct_stat_print(const struct ct_stat_options *options, const char *where,
                                const struct cJSON *status, struct ct_err *err);

/* Writes how the job has ended, as ct_stat_screen_end() says it. With --json it writes `verdict`,
 * or nothing if that is NULL. */
CT_MUST_CHECK int ct_stat_print_end(const struct ct_stat_options *options, const char *where,
                                    const struct cJSON *last, const struct cJSON *verdict,
                                    struct ct_err *err);

#endif
