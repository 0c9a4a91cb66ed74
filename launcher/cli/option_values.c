/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers are read as Python reads them, blanks around them included; words must match exactly.
 */
#include "launcher/cli/option_values.h"

#include "common/clock.h"
#include "common/num.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Two samples of the progress pages must be taken in this time; no job waits for a week. */
#define HANG_TIMEOUT_MIN_S 0.5
#define HANG_TIMEOUT_MAX_S (7.0 * 86400)
/* A hang is not answered for so long. */
#define HANG_STACKS_MIN_S 0.1
#define HANG_STACKS_MAX_S 60.0

/* Shares of work are measured to some percent. */
#define SLOW_FACTOR_MIN 1.5
#define SLOW_FACTOR_MAX 50.0

const char *ct_option_trim(const char *value, char out[CT_OPTION_NUMBER_MAX])
{
    const char *at = value;
    while (isspace((unsigned char)*at)) {
        at++;
    }
    size_t len = strlen(at);
    while (len > 0 && isspace((unsigned char)at[len - 1])) {
        len--;
    }
    if (at[len] == '\0') {
        return at;
    }
    if (len >= CT_OPTION_NUMBER_MAX) {
        return value;
    }
    memcpy(out, at, len);
    out[len] = '\0';
    return out;
}

int ct_option_word(const char *origin, const char *value, const char *const *words, int *out,
                   struct ct_err *err)
{
    char all[256] = "";
    size_t len = 0;
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i;
            return 0;
        }
        const char *glue = i == 0 ? "" : words[i + 1] != NULL ? ", " : " or ";
        int n = snprintf(all + len, sizeof(all) - len, "%s%s", glue, words[i]);
        len = n > 0 && len + (size_t)n < sizeof(all) ? len + (size_t)n : sizeof(all) - 1;
    }
    return ct_err_set(err, CT_EINVAL, "%s: '%.64s' is not %s", origin, value, all);
}

int ct_option_hang_stacks(const char *origin, const char *value, int *out, struct ct_err *err)
{
    char number[CT_OPTION_NUMBER_MAX];
    double seconds;
    if (strcmp(value, "off") == 0) {
        *out = 0;
        return 0;
    }
    if (ct_parse_double(ct_option_trim(value, number), HANG_STACKS_MIN_S, HANG_STACKS_MAX_S,
                        &seconds) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' is neither off nor a number of seconds from 0.1 to 60",
                          origin, value);
    }
    *out = (int)(seconds * 1000);
    return 0;
}

/* Reads a time with or without a unit. Returns 0 if it is none or out of range. */
static int64_t read_window_ms(const char *text)
{
    static const struct {
        char unit;
        double ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}};
    char number[CT_OPTION_NUMBER_MAX];
    size_t len = strlen(text);
    double scale = 3600000, value;
    if (len == 0 || len >= sizeof(number)) {
        return 0;
    }
    memcpy(number, text, len + 1);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (number[len - 1] == units[i].unit) {
            scale = units[i].ms;
            number[len - 1] = '\0';
            break;
        }
    }
    if (ct_parse_double(number, 0, (double)CT_RESTARTS_WINDOW_MAX_MS / scale, &value) != 0) {
        return 0;
    }
    return (int64_t)(value * scale);
}

int ct_option_restart_budget(const char *origin, const char *value, struct ct_restart_limits *out,
                             struct ct_err *err)
{
    char number[CT_OPTION_NUMBER_MAX];
    const char *slash = strchr(value, '/');
    size_t len = slash != NULL ? (size_t)(slash - value) : sizeof(number);
    int restarts = 0;
    int64_t window_ms = 0;
    if (len < sizeof(number)) {
        memcpy(number, value, len);
        number[len] = '\0';
        window_ms = read_window_ms(slash + 1);
    }
    if (slash == NULL && ct_parse_int(value, 1, CT_RESTARTS_WINDOW_MAX, &restarts) == 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' has no time: write %d/24h for so many restarts in any 24 "
                          "hours, or --max-restarts %d for the whole job",
                          origin, value, restarts, restarts);
    }
    if (window_ms < 1000 || ct_parse_int(number, 1, CT_RESTARTS_WINDOW_MAX, &restarts) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' is not N/TIME with 1 to %d restarts in 1s to 365d, such as "
                          "10/24h",
                          origin, value, CT_RESTARTS_WINDOW_MAX);
    }
    out->window_restarts = restarts;
    out->window_ms = window_ms;
    return 0;
}

/* Returns the end of the name of a module ("a.b_c") at `at`, or NULL if there is none. Letters that
 * are not ASCII are left to Python. */
static const char *skip_module(const char *at)
{
    for (;;) {
        const char *first = at;
        while (isalnum((unsigned char)*at) || *at == '_' || (unsigned char)*at >= 0x80) {
            at++;
        }
        if (at == first || isdigit((unsigned char)*first)) {
            return NULL;
        }
        if (*at != '.') {
            return at;
        }
        at++;
    }
}

int ct_option_warm_import(const char *origin, const char *value, const char **out,
                          struct ct_err *err)
{
    const char *at = skip_module(value);
    while (at != NULL && *at == ',') {
        at = skip_module(at + 1);
    }
    if (at == NULL || *at != '\0') {
        return ct_err_set(
            err, CT_EINVAL,
            "%s: '%.64s' is neither auto nor names of modules such as torch,numpy.fft", origin,
            value);
    }
    *out = value;
    return 0;
}

int ct_option_slow_factor(const char *origin, const char *value, double *out, struct ct_err *err)
{
    char number[CT_OPTION_NUMBER_MAX];
    double factor;
    if (strcmp(value, "off") == 0) {
        *out = 0;
        return 0;
    }
    if (ct_parse_double(ct_option_trim(value, number), SLOW_FACTOR_MIN, SLOW_FACTOR_MAX, &factor) !=
        0) {
        return ct_err_set(err, CT_EINVAL, "%s: '%.64s' is neither off nor a number from 1.5 to 50",
                          origin, value);
    }
    *out = factor;
    return 0;
}

int ct_option_hang_timeout(const char *origin, const char *value, int64_t *out, struct ct_err *err)
{
    char number[CT_OPTION_NUMBER_MAX];
    double seconds;
    if (strcmp(value, "auto") == 0 || strcmp(value, "off") == 0) {
        *out = value[0] == 'a' ? 0 : -1;
        return 0;
    }
    if (ct_parse_double(ct_option_trim(value, number), HANG_TIMEOUT_MIN_S, HANG_TIMEOUT_MAX_S,
                        &seconds) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' is neither auto, off nor a number of seconds from 0.5 to "
                          "604800",
                          origin, value);
    }
    *out = (int64_t)(seconds * (double)CT_NS_PER_S);
    return 0;
}
