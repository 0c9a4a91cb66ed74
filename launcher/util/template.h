/* SPDX-License-Identifier: Apache-2.0
 *
 * Text with ${name} in it, by the rules of Python's string.Template.safe_substitute().
 */
#ifndef CT_LAUNCHER_UTIL_TEMPLATE_H
#define CT_LAUNCHER_UTIL_TEMPLATE_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

struct ct_template_var {
    const char *name, *value;
    bool braced_only; /* $name stays as it is */
};

/* Appends `text` with ${name} and $name replaced (in braces a name may have any characters); "$$"
 * is "$", other names stay. CT_ENOMEM. */
CT_MUST_CHECK int ct_template_expand(const char *text, const struct ct_template_var *vars,
                                     size_t count, struct ct_buf *out);

#endif
