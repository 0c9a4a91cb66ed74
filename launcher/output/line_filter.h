/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies the lines of one stream that hold one of several words into a file that many streams share
 * (torchrun's --duplicate-stdout-filters and --duplicate-stderr-filters).
 */
#ifndef CT_LAUNCHER_OUTPUT_LINE_FILTER_H
#define CT_LAUNCHER_OUTPUT_LINE_FILTER_H

#include "common/err.h"
#include "launcher/util/strlist.h"

#include <stddef.h>

struct ct_line_filter;

struct ct_line_filter_options {
    const char *words;  /* "a,b": lines with a or b; ",," is a comma; empty words do not count */
    const char *path;   /* appended to, created with mode 0644 */
    const char *prefix; /* put in front of each copied line; words are not searched in it */
};

/* Appends the words of such a list. CT_ENOMEM. */
CT_MUST_CHECK int ct_line_filter_words(const char *text, struct ct_strlist *out);

/* Gives *out. CT_ENOMEM, or why the file cannot be opened. */
CT_MUST_CHECK int ct_line_filter_open(const struct ct_line_filter_options *options,
                                      struct ct_line_filter **out, struct ct_err *err);

/* Takes bytes that the worker wrote. After a failure lines are missing, in the file only. */
CT_MUST_CHECK int ct_line_filter_feed(struct ct_line_filter *filter, const void *bytes, size_t len);

/* Frees the filter. A last line without '\n' is treated like the others. NULL is allowed. */
void ct_line_filter_free(struct ct_line_filter *filter);

#endif
