/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of restarts, what is counted against them, and their form in a JOIN.
 */
#include "rendezvous/control/restarts.h"

#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- a window of time ----------------------------------------------------------------------- */

bool ct_restarts_allowed(const struct ct_restarts *restarts, const struct ct_restart_limits *limits,
                         int64_t now_ms)
{
    uint64_t allowed = (uint64_t)limits->window_restarts;
    if (allowed == 0 || restarts->taken < allowed) {
        return true;
    }
    /* The restart that is `allowed` restarts ago has to be outside of the window. */
    int64_t oldest = restarts->taken_ms[(restarts->taken - allowed) % CT_RESTARTS_WINDOW_MAX];
    return now_ms - oldest >= limits->window_ms;
}

void ct_restarts_take(struct ct_restarts *restarts, int64_t now_ms)
{
    restarts->taken_ms[restarts->taken++ % CT_RESTARTS_WINDOW_MAX] = now_ms;
}

/* ---- progress ------------------------------------------------------------------------------- */

/* Sets the range of steps with which generations have begun, and what they are compared with. */
static void begin_series(struct ct_restarts *restarts, const struct ct_steps *steps)
{
    restarts->stepped = true;
    restarts->high = steps->last;
    restarts->low = restarts->top = steps->first;
}

int ct_restarts_judge(struct ct_restarts *restarts, const struct ct_steps *steps)
{
    bool further = steps->any && (!restarts->stepped || steps->last > restarts->high);
    bool went_back = steps->any && steps->first < restarts->low; /* on purpose */
    bool moved_on = steps->any && steps->first > restarts->top;  /* with its checkpoint */
    if (further || went_back) {
        begin_series(restarts, steps);
    } else if (moved_on) {
        restarts->top = steps->first;
    }
    if (further || went_back || moved_on) {
        restarts->no_progress = 0;
    } else if (restarts->stepped && restarts->no_progress < INT_MAX) {
        restarts->no_progress++;
    }
    return restarts->no_progress;
}

/* ---- machines ------------------------------------------------------------------------------- */

static bool is_machine(const struct ct_machine_name *name, const char *host, const char *address)
{
    return strcmp(name->host, host) == 0 && strcmp(name->address, address) == 0;
}

static void set_machine(struct ct_machine_name *name, const char *host, const char *address)
{
    (void)snprintf(name->host, sizeof(name->host), "%s", host);
    (void)snprintf(name->address, sizeof(name->address), "%s", address);
}

int ct_restarts_blame(struct ct_restarts *restarts, const char *host, const char *address)
{
    if (!is_machine(&restarts->blamed, host, address)) {
        set_machine(&restarts->blamed, host, address);
        restarts->blames = 0;
    }
    restarts->blames += restarts->blames < INT_MAX;
    return restarts->blames;
}

void ct_restarts_leave_out(struct ct_restarts *restarts, const char *host, const char *address)
{
    if (!ct_restarts_is_left_out(restarts, host, address)) {
        set_machine(&restarts->left_out[restarts->num_left_out++ % CT_RESTARTS_LEFT_OUT_MAX], host,
                    address);
    }
}

bool ct_restarts_is_left_out(const struct ct_restarts *restarts, const char *host,
                             const char *address)
{
    for (uint64_t i = 0; i < restarts->num_left_out && i < CT_RESTARTS_LEFT_OUT_MAX; i++) {
        if (is_machine(&restarts->left_out[i], host, address)) {
            return true;
        }
    }
    return false;
}

/* ---- the limits ----------------------------------------------------------------------------- */

bool ct_restart_limits_are_sound(const struct ct_restart_limits *limits)
{
    bool window = limits->window_restarts > 0;
    return limits->max_no_progress >= 0 && limits->max_no_progress <= CT_RESTARTS_ROW_MAX &&
           limits->ban_after >= 0 && limits->ban_after <= CT_RESTARTS_ROW_MAX &&
           limits->window_restarts >= 0 && limits->window_restarts <= CT_RESTARTS_WINDOW_MAX &&
           limits->window_ms >= (window ? 1 : 0) &&
           limits->window_ms <= (window ? CT_RESTARTS_WINDOW_MAX_MS : 0);
}

const char *ct_restart_limits_differ(const struct ct_restart_limits *one,
                                     const struct ct_restart_limits *other)
{
    if (one->max_no_progress != other->max_no_progress) {
        return "--max-no-progress";
    }
    if (one->ban_after != other->ban_after) {
        return "--ban-after";
    }
    bool same =
        one->window_restarts == other->window_restarts && one->window_ms == other->window_ms;
    return same ? NULL : "--restart-budget";
}

const char *ct_restart_limits_window(const struct ct_restart_limits *limits,
                                     char out[CT_RESTARTS_WINDOW_TEXT])
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = {{3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    size_t i = 0;
    while (limits->window_ms % units[i].ms != 0) {
        i++;
    }
    if (limits->window_restarts == 0) {
        return "off";
    }
    (void)snprintf(out, CT_RESTARTS_WINDOW_TEXT, "%d/%" PRId64 "%s", limits->window_restarts,
                   limits->window_ms / units[i].ms, units[i].unit);
    return out;
}

/* ---- on the wire ---------------------------------------------------------------------------- */

#define AT(member) offsetof(struct ct_restart_limits, member)
static const struct ct_json_field fields[] = {
    {1, "max_no_progress", CT_JSON_INT, AT(max_no_progress), 0, 0, CT_RESTARTS_ROW_MAX, NULL},
    {1, "window_restarts", CT_JSON_INT, AT(window_restarts), 0, 0, CT_RESTARTS_WINDOW_MAX, NULL},
    {1, "window_ms", CT_JSON_I64, AT(window_ms), 0, 0, CT_RESTARTS_WINDOW_MAX_MS, NULL},
    {1, "ban_after", CT_JSON_INT, AT(ban_after), 0, 0, CT_RESTARTS_ROW_MAX, NULL},
};
#undef AT
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

int ct_restart_limits_to_json(const struct ct_restart_limits *limits, struct cJSON *join)
{
    static const struct ct_restart_limits none;
    if (ct_restart_limits_differ(limits, &none) == NULL) {
        return 0;
    }
    cJSON *object = cJSON_AddObjectToObject(join, "limits");
    return object != NULL ? ct_json_write_fields(object, fields, FIELDS, 1, limits) : CT_ENOMEM;
}

int ct_restart_limits_from_json(const struct cJSON *join, struct ct_restart_limits *out,
                                struct ct_err *err)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(join, "limits");
    *out = (struct ct_restart_limits){0};
    if (object == NULL) {
        return 0;
    }
    if (!cJSON_IsObject(object)) {
        return ct_err_set(err, CT_EFORMAT, "field \"limits\" must be an object");
    }
    return ct_json_read_fields(object, fields, FIELDS, 1, out, err);
}
