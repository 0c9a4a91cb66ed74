/* SPDX-License-Identifier: Apache-2.0
 *
 * A reference to an unknown name stays in the text as it is.
 */
#include "launcher/util/template.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Length of the ASCII identifier at `p`, 0 when there is none. */
static size_t identifier(const char *p)
{
    size_t len = 0;
    while (p[len] == '_' || (isascii((unsigned char)p[len]) && isalpha((unsigned char)p[len])) ||
           (len > 0 && p[len] >= '0' && p[len] <= '9')) {
        len++;
    }
    return len;
}

/* Whether `p` begins with the name and a closing brace. */
static bool closes(const char *p, const char *name)
{
    size_t len = strlen(name);
    return strncmp(p, name, len) == 0 && p[len] == '}';
}

/* The variable to which the '$' at `p` refers, or NULL; *len gets the reference's length. */
static const struct ct_template_var *reference(const char *p, const struct ct_template_var *vars,
                                               size_t count, size_t *len)
{
    bool braced = p[1] == '{';
    const char *start = p + 1 + braced;
    size_t name = identifier(start);
    for (size_t i = 0; i < count; i++) {
        size_t own = strlen(vars[i].name);
        bool same =
            braced ? closes(start, vars[i].name)
                   : !vars[i].braced_only && own == name && memcmp(vars[i].name, start, name) == 0;
        if (same) {
            *len = 1 + braced + own + braced;
            return &vars[i];
        }
    }
    return NULL;
}

int ct_template_expand(const char *text, const struct ct_template_var *vars, size_t count,
                       struct ct_buf *out)
{
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        size_t len = strcspn(text, "$");
        rc = ct_buf_append(out, text, len);
        text += len;
        if (rc != 0 || *text == '\0') {
            break;
        }
        const struct ct_template_var *var = reference(text, vars, count, &len);
        if (var != NULL) {
            rc = ct_buf_append(out, var->value, strlen(var->value));
            text += len;
        } else {
            rc = ct_buf_append(out, "$", 1);
            text += text[1] == '$' ? 2 : 1;
        }
    }
    return rc;
}
