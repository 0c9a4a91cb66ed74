/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the value of each option: as its row says, or by a function of its own.
 */
#include "launcher/cli/option_table.h"

#include "common/addr.h"
#include "common/num.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/rdzv_conf.h"
#include "launcher/preflight/preflight_limits.h"
#include "launcher/util/signals.h"
#include "rendezvous/control/control.h"

#include <limits.h>
#include <signal.h>
#include <string.h>

/* A day. Nobody waits longer for a worker to stop, and the time in ms does not overflow. */
#define SHUTDOWN_TIMEOUT_MAX_S 86400
#define MONITOR_INTERVAL_MAX_S 1e9

static const char *const binds[] = {"none", "numa", "core", NULL};
static const enum ct_bind bind_of[] = {CT_BIND_NONE, CT_BIND_NODE, CT_BIND_EXCLUSIVE};
static const char *const start_methods[] = {"spawn", "fork", "forkserver"};
static const char *const event_log_handlers[] = {"null", "console", "dynamic_rendezvous"};

/* Each option has one bit in ct_options.given_by_flag and given_by_env. */
_Static_assert(CT_OPT_REFUSED < 64 * CT_OPTION_WORDS, "one more word of bits is needed");

static uint64_t bit_of(enum ct_option_id id)
{
    return UINT64_C(1) << ((unsigned)id % 64);
}

static bool is_env(const char *origin)
{
    return strncmp(origin, "PET_", 4) == 0;
}

/* `unit` follows "a whole number" in the error: "", or " of seconds". */
static int read_int(const char *origin, const char *value, const char *unit, int min, int max,
                    int *out, struct ct_err *err)
{
    char number[CT_OPTION_NUMBER_MAX];
    if (ct_parse_int(ct_option_trim(value, number), min, max, out) != 0) {
        return ct_err_set(err, CT_EINVAL, "%s: '%.64s' is not a whole number%s from %d to %d",
                          origin, value, unit, min, max);
    }
    return 0;
}

static int read_nproc(const char *origin, const char *value, struct ct_options *options,
                      struct ct_err *err)
{
    static const struct {
        const char *name;
        enum ct_nproc_kind kind;
    } kinds[] = {{"auto", CT_NPROC_AUTO}, {"cpu", CT_NPROC_CPU}, {"gpu", CT_NPROC_GPU}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(value, kinds[i].name) == 0) {
            options->nproc_kind = kinds[i].kind;
            return 0;
        }
    }
    if (strcmp(value, "xpu") == 0) {
        return ct_err_set(err, CT_EUNSUPPORTED, "%s: xpu is not supported yet", origin);
    }
    char number[CT_OPTION_NUMBER_MAX];
    if (ct_parse_int(ct_option_trim(value, number), 1, CT_WORKERS_MAX, &options->nproc) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' is neither a number from 1 to %d nor auto, cpu or gpu",
                          origin, value, CT_WORKERS_MAX);
    }
    options->nproc_kind = CT_NPROC_COUNT;
    return 0;
}

static int read_nnodes(const char *origin, const char *value, struct ct_options *options,
                       struct ct_err *err)
{
    char low[CT_OPTION_NUMBER_MAX], number[CT_OPTION_NUMBER_MAX];
    const char *colon = strchr(value, ':');
    size_t len = colon != NULL ? (size_t)(colon - value) : strlen(value);
    int min, max;
    if (len >= sizeof(low)) {
        return ct_err_set(err, CT_EINVAL, "%s: '%.64s' is neither N nor MIN:MAX", origin, value);
    }
    memcpy(low, value, len);
    low[len] = '\0';
    const char *high = colon != NULL ? colon + 1 : low;
    if (ct_parse_int(ct_option_trim(low, number), 1, CT_MAX_NODES, &min) != 0 ||
        ct_parse_int(ct_option_trim(high, number), 1, CT_MAX_NODES, &max) != 0 || min > max) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' is neither N nor MIN:MAX with 1 <= MIN <= MAX", origin,
                          value);
    }
    options->min_nodes = min;
    options->max_nodes = max;
    return 0;
}

static int read_rank_set(const char *origin, const char *value, struct ct_rank_set *out,
                         struct ct_err *err)
{
    struct ct_rank_set set = {.given = true};
    for (const char *p = value;;) {
        char word[16];
        size_t len;
        int rank;
        p += strspn(p, " ");
        len = strcspn(p, ", ");
        if (len >= sizeof(word)) {
            break;
        }
        memcpy(word, p, len);
        word[len] = '\0';
        if (ct_parse_int(word, 0, CT_WORKERS_MAX - 1, &rank) != 0) {
            break;
        }
        set.bits[rank / 64] |= UINT64_C(1) << (rank % 64);
        p += len;
        p += strspn(p, " ");
        if (*p == '\0') {
            *out = set;
            return 0;
        }
        if (*p++ != ',') {
            break;
        }
    }
    return ct_err_set(err, CT_EINVAL, "%s: '%.64s' is not a list of local ranks like 0,2", origin,
                      value);
}

/* The id becomes part of a folder's name (see logdir.c) and is printed. */
static int read_run_id(const char *origin, const char *value, const char **out, struct ct_err *err)
{
    size_t len = strlen(value);
    if (len == 0 || len >= CT_RUN_ID_MAX - 16) {
        return ct_err_set(err, CT_EINVAL, "%s: an id has 1 to %d characters", origin,
                          CT_RUN_ID_MAX - 17);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)value[i] < ' ' || value[i] == 0x7f) {
            return ct_err_set(err, CT_EINVAL, "%s: an id has no control characters", origin);
        }
    }
    *out = value;
    return 0;
}

static int read_address(const char *origin, const char *value, char out[CT_HOST_MAX],
                        struct ct_err *err)
{
    struct ct_endpoint endpoint;
    if (ct_endpoint_parse(value, 0, &endpoint, err) != 0) {
        (void)ct_err_wrap(err, "%s", origin);
        return CT_EINVAL;
    }
    if (endpoint.has_port) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' has a port; use --master-port or --rdzv-endpoint", origin,
                          value);
    }
    memcpy(out, endpoint.host, CT_HOST_MAX);
    return 0;
}

static int read_streams(const char *origin, const char *value, struct ct_redirects *out,
                        struct ct_err *err)
{
    if (ct_redirects_parse(value, out, err) != 0) {
        (void)ct_err_wrap(err, "%s", origin);
        return CT_EINVAL;
    }
    return 0;
}

static int read_text(const char *origin, const char *value, const char **out, struct ct_err *err)
{
    if (value[0] == '\0') {
        return ct_err_set(err, CT_EINVAL,
                          "%s: the value is empty; is the variable set that it comes from?",
                          origin);
    }
    *out = value;
    return 0;
}

/* An empty list is refused, because it may come from a shell variable that is not set. The job
 * would then run on this machine, which its user does not expect. */
static int read_machines(const char *origin, const char *value, const char **out,
                         struct ct_err *err)
{
    if (value[0] == '\0') {
        return ct_err_set(err, CT_EINVAL,
                          "%s: the value is empty; is the variable set that it comes from? Without "
                          "the option the job runs on this machine",
                          origin);
    }
    *out = value;
    return 0;
}

static int read_backend(const char *origin, const char *value, enum ct_rdzv_backend *out,
                        struct ct_err *err)
{
    static const struct {
        const char *name;
        enum ct_rdzv_backend backend;
    } backends[] = {
        {"static", CT_RDZV_STATIC},
        {"c10d", CT_RDZV_C10D},
        {"etcd", CT_RDZV_ETCD},
        {"etcd-v2", CT_RDZV_ETCD}, /* torchrun's other name; both speak version 3 here */
    };
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(value, backends[i].name) == 0) {
            *out = backends[i].backend;
            return 0;
        }
    }
    return ct_err_set(err, CT_EUNSUPPORTED,
                      "%s %.64s is not supported: ctrun serves its own store, named by static or "
                      "c10d, or found by etcd",
                      origin, value);
}

static int read_seconds(const char *origin, const char *value, struct ct_err *err)
{
    char number[CT_OPTION_NUMBER_MAX];
    double seconds;
    if (ct_parse_double(ct_option_trim(value, number), 0, MONITOR_INTERVAL_MAX_S, &seconds) != 0) {
        return ct_err_set(err, CT_EINVAL, "%s: '%.64s' is not a number of seconds from 0 to %.0f",
                          origin, value, MONITOR_INTERVAL_MAX_S);
    }
    return 0;
}

/* The word has no effect. A misspelt one is refused on the command line, but not in the
 * environment, as in torchrun. */
static int read_choice(const char *origin, const char *value, const char *const choices[3],
                       struct ct_err *err)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, choices[i]) == 0) {
            return 0;
        }
    }
    return is_env(origin) ? 0
                          : ct_err_set(err, CT_EINVAL, "%s: '%.64s' is none of %s, %s, %s", origin,
                                       value, choices[0], choices[1], choices[2]);
}

static int read_shell(const char *origin, const char *value, enum ct_shell *out, struct ct_err *err)
{
    if (strcmp(value, "bash") == 0 || strcmp(value, "zsh") == 0) {
        *out = value[0] == 'b' ? CT_SHELL_BASH : CT_SHELL_ZSH;
        return 0;
    }
    return ct_err_set(err, CT_EUNSUPPORTED, "%s %.64s is not supported: only bash and zsh are",
                      origin, value);
}

static int read_signal(const char *origin, const char *value, int *out, struct ct_err *err)
{
    int signo = ct_signal_number(value);
    if (signo == 0 || signo == SIGKILL || signo == SIGSTOP) {
        return ct_err_set(err, CT_EINVAL,
                          "%s: '%.64s' is no signal that a program can handle, such as SIGUSR1",
                          origin, value);
    }
    *out = signo;
    return 0;
}

static const char *const preflight_words[] = {"first", "each", NULL};

/* Checks the text, which the preflight itself reads. */
static int read_preflight_limits(const char *origin, const char *value, const char **out,
                                 struct ct_err *err)
{
    struct ct_preflight_limits limits = CT_PREFLIGHT_LIMITS_INIT;
    if (ct_preflight_limits_parse(value, &limits, err) != 0) {
        return ct_err_wrap(err, "%s", origin);
    }
    *out = value;
    return 0;
}

static int apply_special(const struct ct_option_spec *spec, const char *origin, const char *value,
                         struct ct_options *options, struct ct_err *err)
{
    int number, rc;
    switch ((int)spec->id) { /* an int, because apply() has stored the other options and they need
                                no case here */
    case CT_OPT_NPROC_PER_NODE:
        return read_nproc(origin, value, options, err);
    case CT_OPT_NNODES:
        return read_nnodes(origin, value, options, err);
    case CT_OPT_MASTER_ADDR:
        return read_address(origin, value, options->master_addr, err);
    case CT_OPT_SHUTDOWN_TIMEOUT:
        rc = read_int(origin, value, " of seconds", 0, SHUTDOWN_TIMEOUT_MAX_S, &number, err);
        if (rc == 0) {
            options->shutdown_timeout_ms = (int64_t)number * 1000;
        }
        return rc;
    case CT_OPT_REDIRECTS:
        return read_streams(origin, value, &options->redirects, err);
    case CT_OPT_TEE:
        return read_streams(origin, value, &options->tee, err);
    case CT_OPT_LOCAL_RANKS_FILTER:
        return read_rank_set(origin, value, &options->shown, err);
    case CT_OPT_RDZV_ID:
        return read_run_id(origin, value, &options->run_id, err);
    case CT_OPT_RDZV_BACKEND:
        return read_backend(origin, value, &options->backend, err);
    case CT_OPT_RDZV_ENDPOINT:
        options->endpoint_text = value; /* what it means depends on the back end */
        return 0;
    case CT_OPT_RDZV_CONF:
        return ct_rdzv_conf_parse(value, &options->rdzv_conf, err) == 0
                   ? 0
                   : ct_err_wrap(err, "%s", origin);
    case CT_OPT_HOSTS:
        return read_machines(origin, value, &options->hosts, err);
    case CT_OPT_HOSTFILE:
        return read_machines(origin, value, &options->hostfile, err);
    case CT_OPT_LOCAL_ADDR:
        return read_address(origin, value, options->local_addr, err);
    case CT_OPT_BIND:
        rc = ct_option_word(origin, value, binds, &number, err);
        options->bind = rc == 0 ? bind_of[number] : options->bind;
        return rc;
    case CT_OPT_WARM:
        options->warm = -1;
        return value == NULL ? 0
                             : read_int(origin, value, "", 0, CT_WORKERS_MAX, &options->warm, err);
    case CT_OPT_PREFLIGHT:
        number = 0;
        rc = value == NULL ? 0 : ct_option_word(origin, value, preflight_words, &number, err);
        options->preflight = rc == 0 ? CT_PREFLIGHT_FIRST + (unsigned)number : options->preflight;
        return rc;
    case CT_OPT_PREFLIGHT_LIMITS:
        return read_preflight_limits(origin, value, &options->preflight_limits, err);
    case CT_OPT_HANG_TIMEOUT:
        return ct_option_hang_timeout(origin, value, &options->hang_timeout_ns, err);
    case CT_OPT_HANG_STACKS:
        return ct_option_hang_stacks(origin, value, &options->hang_stacks_ms, err);
    case CT_OPT_SLOW_FACTOR:
        return ct_option_slow_factor(origin, value, &options->slow_factor, err);
    case CT_OPT_WARM_IMPORT:
        return ct_option_warm_import(origin, value, &options->warm_import, err);
    case CT_OPT_MONITOR_INTERVAL:
        return read_seconds(origin, value, err);
    case CT_OPT_START_METHOD:
        return read_choice(origin, value, start_methods, err);
    case CT_OPT_EVENT_LOG_HANDLER:
        return read_choice(origin, value, event_log_handlers, err);
    case CT_OPT_PREEMPT_SIGNAL:
        return read_signal(origin, value, &options->preempt_signal, err);
    case CT_OPT_RESTART_BUDGET:
        return ct_option_restart_budget(origin, value, &options->limits, err);
    case CT_OPT_NO_RESTART_ON:
        return ct_code_set_parse(value, &options->no_restart_on, err) == 0
                   ? 0
                   : ct_err_wrap(err, "%s", origin);
    case CT_OPT_ATTACH:
        options->attach = true;
        return value == NULL ? 0 : read_text(origin, value, &options->attach_job, err);
    case CT_OPT_PRINT_COMPLETION:
        return read_shell(origin, value, &options->completion, err);
    case CT_OPT_REFUSED:
        return ct_err_set(err, CT_EUNSUPPORTED, "%s %s", origin, spec->refusal);
    default: /* never --help, which options.c reads, since its value may be missing */
        return ct_err_set(err, CT_EINVAL, "%s: unknown option", origin);
    }
}

static const char *unit_of(const struct ct_option_spec *spec)
{
    return strcmp(spec->metavar, "SECONDS") == 0 ? " of seconds"
           : strcmp(spec->metavar, "MIB") == 0   ? " of MiB"
                                                 : "";
}

static int apply(const struct ct_option_spec *spec, const char *origin, const char *value,
                 struct ct_options *options, struct ct_err *err)
{
    void *field = (char *)options + spec->field;
    int number, rc;
    switch (spec->type) {
    case CT_TYPE_SPECIAL:
        break;
    case CT_TYPE_FLAG:
        *(bool *)field = true;
        return 0;
    case CT_TYPE_NUMBER:
        return read_int(origin, value, unit_of(spec), spec->min, spec->max, field, err);
    case CT_TYPE_TEXT:
        return read_text(origin, value, field, err);
    case CT_TYPE_ANY_TEXT:
        *(const char **)field = value;
        return 0;
    case CT_TYPE_WORD:
        rc = ct_option_word(origin, value, spec->words, &number, err);
        if (rc == 0) {
            number += spec->min;
            memcpy(field, &number, sizeof(number));
        }
        return rc;
    }
    return apply_special(spec, origin, value, options, err);
}

/* Sets the option back to its default. */
static void forget(const struct ct_option_spec *spec, struct ct_options *options)
{
    enum ct_option_id id = spec->id;
    if (spec->type == CT_TYPE_TEXT) {
        *(const char **)(void *)((char *)options + spec->field) = NULL;
    } else if (id == CT_OPT_LOCAL_RANKS_FILTER) {
        options->shown = (struct ct_rank_set){0};
    } else if (id == CT_OPT_RDZV_ID) {
        options->run_id = NULL;
    } else if (id == CT_OPT_RDZV_ENDPOINT) {
        options->endpoint_text = NULL;
    } else if (id == CT_OPT_LOCAL_ADDR) {
        options->local_addr[0] = '\0';
    } else if (id == CT_OPT_MASTER_ADDR) {
        options->master_addr[0] = '\0';
    }
    options->given_by_env[id / 64] &= ~bit_of(id);
    options->given_by_flag[id / 64] &= ~bit_of(id);
}

int ct_option_apply(const struct ct_option_spec *spec, const char *origin, const char *value,
                    struct ct_options *options, struct ct_err *err)
{
    if (spec->empty_is_default && value[0] == '\0') {
        forget(spec, options);
        return 0;
    }
    int rc = apply(spec, origin, value, options, err);
    if (rc == 0) {
        uint64_t *given = is_env(origin) ? options->given_by_env : options->given_by_flag;
        given[spec->id / 64] |= bit_of(spec->id);
    }
    return rc;
}

enum ct_given ct_option_given(const struct ct_options *options, enum ct_option_id id)
{
    return (options->given_by_flag[id / 64] & bit_of(id)) != 0  ? CT_GIVEN_FLAG
           : (options->given_by_env[id / 64] & bit_of(id)) != 0 ? CT_GIVEN_ENV
                                                                : CT_GIVEN_NOT;
}
