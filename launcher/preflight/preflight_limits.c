/* SPDX-License-Identifier: Apache-2.0
 *
 * A row for each key: the kind of its value, and the field that gets it.
 */
#include "launcher/preflight/preflight_limits.h"

#include "common/num.h"
#include "common/suggest.h"

#include <stddef.h>
#include <string.h>

/* Longer than any value that makes sense. */
#define ITEM_MAX 64
#define BYTES_MAX (1024.0 * (1LL << 40)) /* 1024T */
#define SECONDS_MAX 1e6
#define GPUS_MAX 1024 /* as CT_PREFLIGHT_GPUS_MAX */

enum kind { BYTES, RATE, SECONDS, NUMBER };

#define AT(member) offsetof(struct ct_preflight_limits, member)
static const struct {
    const char *key;
    enum kind kind;
    size_t offset;
} keys[] = {
    {"shm", BYTES, AT(shm)},
    {"disk", BYTES, AT(disk)},
    {"memlock", BYTES, AT(memlock)},
    {"clock", SECONDS, AT(clock_s)},
    {"gpus", NUMBER, AT(gpus)},
    {"bandwidth", RATE, AT(rate)},
    {"latency", SECONDS, AT(latency_s)},
};
#undef AT
#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* Reads a number with an optional K, M, G or T. */
static int read_scaled(char *text, double *out)
{
    static const char units[] = "KMGT";
    size_t len = strlen(text);
    const char *unit = len > 0 ? strchr(units, text[len - 1]) : NULL;
    double scale = 1;
    if (unit != NULL) {
        text[len - 1] = '\0';
        for (const char *u = units; u <= unit; u++) {
            scale *= 1024;
        }
    }
    int rc = ct_parse_double(text, 0, BYTES_MAX / scale, out);
    *out = rc == 0 ? *out * scale : 0;
    return rc;
}

static int store(size_t key, char *value, struct ct_preflight_limits *out)
{
    void *field = (char *)out + keys[key].offset;
    double number = 0;
    int rc;
    switch (keys[key].kind) {
    case NUMBER:
        return ct_parse_int(value, 0, GPUS_MAX, field);
    case SECONDS:
        return ct_parse_double(value, 0, SECONDS_MAX, field);
    case RATE:
        return read_scaled(value, field);
    case BYTES:
        break;
    }
    rc = read_scaled(value, &number);
    *(int64_t *)field = rc == 0 ? (int64_t)number : *(int64_t *)field;
    return rc;
}

static int refuse_key(const char *key, struct ct_err *err)
{
    struct ct_suggestion near = ct_suggestion_for(key, strlen(key));
    for (size_t i = 0; i < KEYS; i++) {
        ct_suggestion_offer(&near, keys[i].key);
    }
    if (near.name != NULL) {
        return ct_err_set(err, CT_EINVAL, "unknown key '%s'; did you mean %s?", key, near.name);
    }
    return ct_err_set(err, CT_EINVAL,
                      "unknown key '%s': there are shm, disk, memlock, clock, gpus, bandwidth and "
                      "latency",
                      key);
}

static int read_item(char *item, struct ct_preflight_limits *out, struct ct_err *err)
{
    char *equals = strchr(item, '=');
    char value[ITEM_MAX];
    size_t key = 0;
    if (equals == NULL || equals == item || equals[1] == '\0') {
        return ct_err_set(err, CT_EFORMAT, "'%s' is not KEY=VALUE", item);
    }
    *equals = '\0';
    while (key < KEYS && strcmp(keys[key].key, item) != 0) {
        key++;
    }
    if (key == KEYS) {
        return refuse_key(item, err);
    }
    memcpy(value, equals + 1, strlen(equals + 1) + 1);
    if (store(key, equals + 1, out) != 0) {
        static const char *const what[] = {
            [BYTES] = "a number of bytes from 0 to 1024T, such as 64M",
            [RATE] = "a number of bytes per second from 0 to 1024T, such as 1G",
            [SECONDS] = "a number of seconds from 0 to 1000000",
            [NUMBER] = "a number from 0 to 1024",
        };
        return ct_err_set(err, CT_EINVAL, "%s: '%s' is not %s", item, value, what[keys[key].kind]);
    }
    return 0;
}

int ct_preflight_limits_parse(const char *text, struct ct_preflight_limits *out, struct ct_err *err)
{
    struct ct_preflight_limits draft = *out;
    for (const char *at = text;; at++) {
        char item[ITEM_MAX];
        size_t len = strcspn(at, ",");
        if (len >= sizeof(item)) {
            return ct_err_set(err, CT_EFORMAT, "'%.32s...' is not KEY=VALUE", at);
        }
        memcpy(item, at, len);
        item[len] = '\0';
        int rc = read_item(item, &draft, err);
        if (rc != 0) {
            return rc;
        }
        at += len;
        if (*at == '\0') {
            break;
        }
    }
    *out = draft;
    return 0;
}
