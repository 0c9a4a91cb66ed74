/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table: what each option of ctrun is called, what it means and how its value is read.
 * To add an option: a field in options.h, an id here, a row in option_table.c, a paragraph in
 * man/ctrun.1; a case in option_apply.c, unless the row says how the value is stored; and its
 * default in options.c, unless that is zero.
 */
#ifndef CT_LAUNCHER_CLI_OPTION_TABLE_H
#define CT_LAUNCHER_CLI_OPTION_TABLE_H

#include "launcher/cli/options.h"

#include <stddef.h>

enum ct_option_id {
    CT_OPT_HELP,
    CT_OPT_VERSION,
    CT_OPT_NPROC_PER_NODE,
    CT_OPT_NNODES,
    CT_OPT_STANDALONE,
    CT_OPT_MASTER_ADDR,
    CT_OPT_MASTER_PORT,
    CT_OPT_MAX_RESTARTS,
    CT_OPT_RESTART_BUDGET,
    CT_OPT_MAX_NO_PROGRESS,
    CT_OPT_NO_RESTART_ON,
    CT_OPT_BAN_AFTER,
    CT_OPT_HEALTH_CHECK,
    CT_OPT_HEALTH_CHECK_TIMEOUT,
    CT_OPT_PREFLIGHT,
    CT_OPT_PREFLIGHT_ONLY,
    CT_OPT_PREFLIGHT_LIMITS,
    CT_OPT_SHUTDOWN_TIMEOUT,
    CT_OPT_MODULE,
    CT_OPT_NO_PYTHON,
    CT_OPT_REDIRECTS,
    CT_OPT_TEE,
    CT_OPT_LOG_DIR,
    CT_OPT_LOCAL_RANKS_FILTER,
    CT_OPT_ROLE,
    CT_OPT_RDZV_ID,
    CT_OPT_RDZV_BACKEND,
    CT_OPT_RDZV_ENDPOINT,
    CT_OPT_RDZV_CONF,
    CT_OPT_NODE_RANK,
    CT_OPT_LOCAL_ADDR,
    CT_OPT_SPARES,
    CT_OPT_TOKEN_FILE,
    CT_OPT_OPEN,
    CT_OPT_HOSTS,
    CT_OPT_HOSTFILE,
    CT_OPT_LAUNCH_AGENT,
    CT_OPT_AGENT_STDIN,
    CT_OPT_AGENT_JOB,
    CT_OPT_DETACH,
    CT_OPT_ATTACH,
    CT_OPT_REPORT,
    CT_OPT_TRACE,
    CT_OPT_BIND,
    CT_OPT_NUMA_BINDING,
    CT_OPT_WARM,
    CT_OPT_WARM_IMPORT,
    CT_OPT_WARM_MEMORY,
    CT_OPT_HANG_TIMEOUT,
    CT_OPT_ON_HANG,
    CT_OPT_HANG_STACKS,
    CT_OPT_SLOW_FACTOR,
    CT_OPT_MONITOR_INTERVAL,
    CT_OPT_START_METHOD,
    CT_OPT_EVENT_LOG_HANDLER,
    CT_OPT_SIGNALS,
    CT_OPT_PREEMPT_SIGNAL,
    CT_OPT_PREFIX_TEMPLATE,
    CT_OPT_VIRTUAL_LOCAL_RANK,
    CT_OPT_GPU_BIND,
    CT_OPT_SHARE_GPU,
    CT_OPT_SLOW_OUTPUT,
    CT_OPT_FOLD,
    CT_OPT_NO_PROGRESS,
    CT_OPT_PRINT_COMPLETION,
    CT_OPT_PRINT_CONFIG,
    CT_OPT_PRINT_URL,
    CT_OPT_LINGER,
    CT_OPT_STDOUT_FILTERS,
    CT_OPT_STDERR_FILTERS,
    CT_OPT_REFUSED, /* torchrun has it, ctrun does not; `refusal` says why */
};

/* Each topic is one screen of --help. help.c has their names. */
enum ct_help_topic {
    CT_HELP_JOB,
    CT_HELP_RESTART,
    CT_HELP_HANG,
    CT_HELP_OUTPUT,
    CT_HELP_NODES,
    CT_HELP_HOSTS,
    CT_HELP_BINDING,
    CT_HELP_GPU,
    CT_HELP_TORCHRUN,
    CT_HELP_ARGUMENTS, /* this and those below are texts, without options */
    CT_HELP_CODES,
    CT_HELP_PROGRAMS,
};

/* How the value of an option is stored. */
enum ct_option_type {
    CT_TYPE_SPECIAL,  /* option_apply.c has a case for it */
    CT_TYPE_FLAG,     /* bool: true */
    CT_TYPE_NUMBER,   /* int, from `min` to `max` */
    CT_TYPE_TEXT,     /* const char *, not empty */
    CT_TYPE_ANY_TEXT, /* const char * */
    CT_TYPE_WORD,     /* an enum: `min` for the first of `words`, and so on */
};

struct ct_option_spec {
    enum ct_option_id id;
    char letter;           /* short spelling, 0 = none */
    bool no_env;           /* no PET_ variable */
    const char *name;      /* long spelling with dashes, without "--" */
    const char *metavar;   /* NULL = a flag */
    const char *help;      /* lines of at most 72 characters; NULL = not in --help */
    const char *refusal;   /* the end of the sentence "--name ..."; NULL = not refused */
    bool empty_is_default; /* as in torchrun, an empty value means the default */
    bool ctrun_only;   /* torchrun does not have it: an abbreviation that fits both is torchrun's */
    bool after_equals; /* the value may be left out, and only follows an equals sign */
    enum ct_help_topic topic;
    const char *brief; /* at most 38 characters; NULL = not among the usual options */
    enum ct_option_type type;
    size_t field; /* offset in struct ct_options; unused by CT_TYPE_SPECIAL */
    int min, max;
    const char *const *words; /* ends with NULL */
};

extern const struct ct_option_spec ct_option_table[];
extern const size_t ct_option_count;

static inline bool ct_option_is_shown(const struct ct_option_spec *spec)
{
    return spec->help != NULL;
}

/* Finds an option that is shown by its whole long name, without its dashes, of which those inside
 * may be underscores; NULL when there is none. */
const struct ct_option_spec *ct_option_by_name(const char *name, size_t len);

/* Reads `value` (NULL for a flag) into `options`. `origin` is what a message calls the option. */
CT_MUST_CHECK int ct_option_apply(const struct ct_option_spec *spec, const char *origin,
                                  const char *value, struct ct_options *options,
                                  struct ct_err *err);

/* The command line wins over the environment. */
enum ct_given ct_option_given(const struct ct_options *options, enum ct_option_id id);

#endif
