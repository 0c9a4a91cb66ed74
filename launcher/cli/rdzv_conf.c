/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of torchrun that mean nothing to ctrun are accepted and ignored; an unknown key is refused
 * with the name it may be meant for.
 */
#include "launcher/cli/rdzv_conf.h"

#include "common/num.h"
#include "common/suggest.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* With a shorter time a busy machine would be taken for a dead one. */
#define SECONDS_MIN 0.1
/* Thirty days. In milliseconds and nanoseconds that does not overflow. */
#define SECONDS_MAX 2592000.0

/* What was read so far. It is a copy, because the caller's values must not change on failure. */
struct draft {
    struct ct_rdzv_conf conf;
    bool has_join;
    int64_t timeout_ms; /* 0 = not there */
};

/* A part of the option's text, which is not copied. */
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

/* Reads seconds, which may have a fraction. */
static int read_seconds(struct span key, struct span value, double min, int64_t *out,
                        struct ct_err *err)
{
    char text[32];
    double seconds = 0;
    size_t len = value.len < sizeof(text) ? value.len : sizeof(text) - 1;
    memcpy(text, value.at, len);
    text[len] = '\0';
    if (value.len != len || ct_parse_double(text, min, SECONDS_MAX, &seconds) != 0) {
        return ct_err_set(err, CT_EINVAL, "%.*s: '%s' is not a number of seconds from %g to %.0f",
                          (int)key.len, key.at, text, min, SECONDS_MAX);
    }
    *out = (int64_t)(seconds * 1000);
    return 0;
}

/* Accepts keys that have no effect, but refuses a key that looks like a mistyped one of ours. */
static int check_unknown(struct span key, struct ct_err *err)
{
    static const char *const ours[] = {"join_timeout",
                                       "last_call_timeout",
                                       "heartbeat_timeout",
                                       "is_host",
                                       "failover",
                                       "timeout",
                                       NULL};
    static const char *const of_torchrun[] = {"store_type",
                                              "read_timeout",
                                              "close_timeout",
                                              "keep_alive_interval",
                                              "keep_alive_max_attempt",
                                              "use_libuv",
                                              "rank",
                                              NULL};
    struct ct_suggestion near = ct_suggestion_for(key.at, key.len);
    if (is_one_of(key, of_torchrun)) {
        return 0;
    }
    for (const char *const *name = ours; *name != NULL; name++) {
        ct_suggestion_offer(&near, *name);
    }
    return near.name == NULL ? 0
                             : ct_err_set(err, CT_EINVAL, "unknown key '%.*s'; did you mean %s?",
                                          (int)key.len, key.at, near.name);
}

static int read_bool(const char *key, struct span value, int *out, struct ct_err *err)
{
    static const char *const yes[] = {"1", "true", "t", "yes", "y", NULL};
    static const char *const no[] = {"0", "false", "f", "no", "n", NULL};
    *out = is_one_of(value, yes);
    return *out == 1 || is_one_of(value, no)
               ? 0
               : ct_err_set(err, CT_EINVAL, "%s: '%.*s' is neither 1 (true, yes) nor 0 (false, no)",
                            key, value.len < 64 ? (int)value.len : 64, value.at);
}

static int read_item(struct span key, struct span value, struct draft *draft, struct ct_err *err)
{
    struct ct_rdzv_conf *conf = &draft->conf;
    if (is(key, "is_host")) {
        return read_bool("is_host", value, &conf->is_host, err);
    }
    if (is(key, "failover")) {
        return read_bool("failover", value, &conf->failover, err);
    }
    if (is(key, "store_type") && !is(value, "tcp")) {
        return ct_err_set(err, CT_EUNSUPPORTED, "store_type: only tcp is supported, not '%.*s'",
                          value.len < 64 ? (int)value.len : 64, value.at);
    }
    if (is(key, "join_timeout")) {
        draft->has_join = true;
        return read_seconds(key, value, SECONDS_MIN, &conf->join_ms, err);
    }
    if (is(key, "timeout")) {
        return read_seconds(key, value, SECONDS_MIN, &draft->timeout_ms, err);
    }
    if (is(key, "last_call_timeout")) {
        return read_seconds(key, value, 0, &conf->settle_ms, err);
    }
    if (is(key, "heartbeat_timeout")) {
        return read_seconds(key, value, SECONDS_MIN, &conf->heartbeat_ms, err);
    }
    return check_unknown(key, err);
}

static int read_items(struct span all, struct draft *draft, struct ct_err *err)
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
        int rc = read_item(key, value, draft, err);
        if (rc != 0) {
            return rc;
        }
        p += len + 1;
    }
    return 0;
}

int ct_rdzv_conf_parse(const char *text, struct ct_rdzv_conf *out, struct ct_err *err)
{
    struct span all = trim(text, strlen(text));
    if (all.len >= 2 && (all.at[0] == '\'' || all.at[0] == '"') &&
        all.at[all.len - 1] == all.at[0]) {
        all = trim(all.at + 1, all.len - 2);
    }
    if (all.len == 0) {
        return 0;
    }
    struct draft draft = {.conf = *out};
    int rc = read_items(all, &draft, err);
    if (rc != 0) {
        return rc;
    }
    if (draft.timeout_ms > 0 && !draft.has_join) {
        draft.conf.join_ms = draft.timeout_ms;
    }
    *out = draft.conf;
    return 0;
}
