/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/rdzv_conf.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* A part of the text. */
struct span {
    const char *at;
    size_t len;
};

static struct span trim(const char *at, size_t len)
{
    static const char blanks[] = " \t\r\n";
    while (len > 0 && strchr(blanks, at[0]) != NULL) {
        at++;
        len--;
    }
    while (len > 0 && strchr(blanks, at[len - 1]) != NULL) {
        len--;
    }
    return (struct span){at, len};
}

static bool is(struct span span, const char *word)
{
    return span.len == strlen(word) && strncasecmp(span.at, word, span.len) == 0;
}

static bool is_one_of(struct span span, const char *const words[])
{
    for (; *words != NULL; words++) {
        if (is(span, *words)) {
            return true;
        }
    }
    return false;
}

static int check_item(struct span key, struct span value, struct ct_err *err)
{
    static const char *const yes[] = {"1", "true", "t", "yes", "y", NULL};
    static const char *const no[] = {"0", "false", "f", "no", "n", NULL};
    if (is(key, "is_host") && !is_one_of(value, yes)) {
        return is_one_of(value, no)
                   ? ct_err_set(err, CT_EUNSUPPORTED,
                                "is_host=%.*s: a store that somebody else serves is not supported "
                                "yet; ctrun serves its own",
                                (int)value.len, value.at)
                   : ct_err_set(err, CT_EINVAL, "is_host: '%.*s' is neither true nor false",
                                value.len < 64 ? (int)value.len : 64, value.at);
    }
    if (is(key, "store_type") && !is(value, "tcp")) {
        return ct_err_set(err, CT_EUNSUPPORTED, "store_type: only tcp is supported, not '%.*s'",
                          value.len < 64 ? (int)value.len : 64, value.at);
    }
    return 0;
}

static int check_items(struct span all, struct ct_err *err)
{
    const char *end = all.at + all.len;
    for (const char *p = all.at; p <= end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t len = (size_t)((comma != NULL ? comma : end) - p);
        const char *equals = memchr(p, '=', len);
        size_t key_len = equals != NULL ? (size_t)(equals - p) : 0;
        struct span key = trim(p, key_len);
        struct span value = {p, 0};
        if (equals != NULL) {
            value = trim(equals + 1, len - key_len - 1);
        }
        if (key.len == 0 || value.len == 0) {
            return ct_err_set(err, CT_EFORMAT, "'%.*s' is not KEY=VALUE", len < 64 ? (int)len : 64,
                              p);
        }
        int rc = check_item(key, value, err);
        if (rc != 0) {
            return rc;
        }
        p += len + 1;
    }
    return 0;
}

int ct_rdzv_conf_check(const char *text, struct ct_err *err)
{
    struct span all = trim(text, strlen(text));
    if (all.len >= 2 && (all.at[0] == '\'' || all.at[0] == '"') &&
        all.at[all.len - 1] == all.at[0]) {
        all = trim(all.at + 1, all.len - 2);
    }
    return all.len > 0 ? check_items(all, err) : 0;
}
