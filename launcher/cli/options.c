/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the environment first and then the command line, which wins, and checks at the end that the
 * options agree with each other. common/option_parser.c finds the options, option_apply.c reads
 * their values.
 */
#include "launcher/cli/options.h"

#include "common/addr.h"
#include "common/buf.h"
#include "common/num.h"
#include "common/option_parser.h"
#include "common/text.h"
#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"
#include "launcher/util/environ.h"
#include "launcher/util/signals.h"
#include "rendezvous/etcd/etcd_settings.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Longer than every option's name with its dashes. */
#define NAME_MAX_LEN 64
/* torchrun's default. */
#define SHUTDOWN_TIMEOUT_MS 30000

#define SEE_HELP "(see ctrun --help)"

bool ct_rank_set_has(const struct ct_rank_set *set, int rank)
{
    if (!set->given) {
        return true;
    }
    return rank >= 0 && rank < CT_WORKERS_MAX && (set->bits[rank / 64] >> (rank % 64) & 1) != 0;
}

void ct_options_program(const struct ct_options *options, char out[CT_JOB_PROGRAM_MAX])
{
    struct ct_buf words = CT_BUF_INIT;
    ct_buf_addf(&words, "%s", options->module ? "-m " : "");
    for (size_t i = 0; options->command != NULL && options->command[i] != NULL; i++) {
        if (words.len >= CT_JOB_PROGRAM_MAX) {
            break; /* the rest would be cut */
        }
        ct_buf_addf(&words, "%s%s", i > 0 ? " " : "", options->command[i]);
    }
    const char *text = ct_buf_cstr(&words);
    (void)ct_text_cut(text != NULL ? text : "", CT_JOB_PROGRAM_MAX, out, CT_JOB_PROGRAM_MAX);
    ct_buf_fini(&words);
}

bool ct_options_only_print(const struct ct_options *options)
{
    return options->help || options->version || options->completion != CT_SHELL_NONE;
}

/* ---- environment ----------------------------------------------------------------------------- */

static int apply_env(const struct ct_option_spec *spec, char *const *env,
                     struct ct_options *options, struct ct_err *err)
{
    char name[NAME_MAX_LEN] = "PET_";
    size_t len = strlen(name);
    for (const char *p = spec->name; *p != '\0' && len < sizeof(name) - 1; p++) {
        name[len++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    }
    name[len] = '\0';

    const char *value = ct_environ_get(env, name);
    if (value == NULL || value[0] == '\0') {
        return 0;
    }
    if (spec->metavar == NULL) {
        char text[CT_OPTION_NUMBER_MAX];
        int64_t number;
        if (ct_parse_i64(ct_option_trim(value, text), INT64_MIN, INT64_MAX, &number) != 0) {
            return ct_err_set(err, CT_EINVAL, "%s: '%.64s' is neither 0 nor 1", name, value);
        }
        if (number == 0) {
            return 0;
        }
        value = NULL;
    }
    return ct_option_apply(spec, name, value, options, err);
}

static int apply_environment(char *const *env, struct ct_options *options, struct ct_err *err)
{
    for (size_t i = 0; i < ct_option_count; i++) {
        const struct ct_option_spec *spec = &ct_option_table[i];
        int rc = spec->no_env ? 0 : apply_env(spec, env, options, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Reads torchrun's own variables. Options and their PET_ variables win over them. */
static int apply_torchrun_variables(char *const *env, struct ct_options *options,
                                    struct ct_err *err)
{
    static const char timeout_name[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    static const struct ct_option_spec timeout_spec = {.id = CT_OPT_SHUTDOWN_TIMEOUT};
    const char *prefix = ct_environ_get(env, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    const char *timeout = ct_environ_get(env, timeout_name);
    if (options->prefix_template == NULL && prefix != NULL && prefix[0] != '\0') {
        options->prefix_template = prefix;
    }
    if (options->shutdown_timeout_ms >= 0) {
        return 0;
    }
    if (timeout != NULL && timeout[0] != '\0') {
        return ct_option_apply(&timeout_spec, timeout_name, timeout, options, err);
    }
    options->shutdown_timeout_ms = SHUTDOWN_TIMEOUT_MS;
    return 0;
}

/* ---- command line ---------------------------------------------------------------------------- */

static struct ct_option option_at(size_t index)
{
    if (index >= ct_option_count) {
        return (struct ct_option){0};
    }
    const struct ct_option_spec *spec = &ct_option_table[index];
    return (struct ct_option){
        .name = spec->name,
        .letter = spec->letter,
        .alias = spec->letter == 'n' ? "np" : NULL, /* as mpirun's users type it */
        .value = spec->id == CT_OPT_HELP || spec->id == CT_OPT_ATTACH ? CT_VALUE_OPTIONAL
                 : spec->after_equals                                 ? CT_VALUE_AFTER_EQUALS
                 : spec->metavar != NULL                              ? CT_VALUE_NEEDED
                                                                      : CT_VALUE_NONE,
        /* "--re" means torchrun's "--redirects", although ctrun has "--report". Options that are
         * refused do not yield: "--log" is ambiguous, as it is for torchrun. */
        .yields = spec->ctrun_only,
        .hidden = spec->help == NULL,
    };
}

/* Does `word` begin with the name, which has dashes where it may have underscores? Returns what
 * follows, or NULL. */
static const char *behind_name(const char *word, const char *name)
{
    for (; *name != '\0'; word++, name++) {
        if (*word != *name && (*word != '_' || *name != '-')) {
            return NULL;
        }
    }
    return word;
}

#define MEANT(name) "did you mean --" name "?"

/* What is used here instead of an option of mpirun, srun or a launcher in Python; NULL = the word
 * is none that is known. No option that is near enough to be suggested needs a row. */
static const char *advice_of_others(const char *word)
{
    static const char machines[] = "the machines are named by --hosts";
    static const char workers[] = "the workers of each machine are --nproc-per-node";
    static const char cpus[] = "the CPUs of a worker are chosen by --bind";
    static const char gpus[] = "which GPU a worker gets: see ctrun --help gpu";
    static const struct {
        const char *word, *advice;
    } others[] = {
        {"-N", "machines are --nnodes (srun -N), workers of each are --nproc-per-node (mpirun -N)"},
        {"-x", "workers get ctrun's own variables: write NAME=VALUE ctrun ..., not -x NAME=VALUE"},
        {"--export", "workers get ctrun's own variables: write NAME=VALUE ctrun ..."},
        {"-w", machines},
        {"--nodelist", machines},
        {"--machinefile", MEANT("hostfile")},
        {"-machinefile", MEANT("hostfile")},
        {"--ntasks", workers},
        {"--ntasks-per-node", workers},
        {"--npernode", workers},
        {"-ppn", workers},
        {"--nprocs", workers},
        {"--num-processes", workers},
        {"--num-gpus", workers},
        {"--num-machines", MEANT("nnodes")},
        {"--num-nodes", MEANT("nnodes")},
        {"--machine-rank", MEANT("node-rank")},
        {"--main-process-ip", MEANT("master-addr")},
        {"--main-process-port", MEANT("master-port")},
        {"--max-retries", MEANT("max-restarts")},
        {"--num-retries", MEANT("max-restarts")},
        {"--retries", MEANT("max-restarts")},
        {"--job-name", MEANT("rdzv-id")},
        {"--background", MEANT("detach")},
        {"--daemon", MEANT("detach")},
        {"--daemonize", MEANT("detach")},
        {"-d", MEANT("detach")},
        {"--output-filename", MEANT("log-dir")},
        {"--timeout", "there are --hang-timeout and others: see ctrun --help timeout"},
        {"--bind-to", cpus},
        {"--map-by", cpus},
        {"--cpu-bind", cpus},
        {"--cpus-per-task", cpus},
        {"--gpus", gpus},
        {"--gpus-per-node", gpus},
        {"--gpus-per-task", gpus},
        {"--gpu-ids", gpus},
        {"--gres", gpus},
        {"--allow-run-as-root", "ctrun needs no leave for that: leave it out"},
        {"--oversubscribe", "ctrun needs no leave for that: leave it out"},
        {"--kill-on-bad-exit", "ctrun always ends all workers when one fails: leave it out"},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const char *rest = behind_name(word, others[i].word);
        bool letter = others[i].word[2] == '\0'; /* its value may follow at once: -N2 */
        if (rest != NULL &&
            (rest[0] == '\0' || rest[0] == '=' || (letter && isdigit((unsigned char)rest[0])))) {
            return others[i].advice;
        }
    }
    return NULL;
}

static int refuse(const struct ct_option_parser *at, enum ct_option_result result,
                  const char *origin, struct ct_err *err)
{
    switch (result) {
    case CT_OPTION_TAKES_NONE:
        return ct_err_set(err, CT_EINVAL, "%s takes no value", origin);
    case CT_OPTION_NEEDS_VALUE:
        return ct_err_set(err, CT_EINVAL, "%s: %s must follow (see ctrun --help %s)", origin,
                          ct_option_table[at->index].metavar, ct_option_table[at->index].name);
    case CT_OPTION_AMBIGUOUS:
        return at->fits_more == 0
                   ? ct_err_set(err, CT_EINVAL, "%.64s is ambiguous: --%s or --%s?", at->word,
                                at->fits[0], at->fits[1])
                   : ct_err_set(err, CT_EINVAL, "%.64s is ambiguous: --%s, --%s or %zu other%s?",
                                at->word, at->fits[0], at->fits[1], at->fits_more,
                                at->fits_more == 1 ? "" : "s");
    case CT_OPTION_UNKNOWN:
    case CT_OPTION_FOUND:
    case CT_OPTION_END:
        break;
    }
    const char *advice = advice_of_others(at->word);
    if (advice != NULL) {
        return ct_err_set(err, CT_EINVAL, "unrecognized option '%.64s'; %s", at->word, advice);
    }
    return at->nearest == NULL
               ? ct_err_set(err, CT_EINVAL, "unrecognized option '%.64s' %s", at->word, SEE_HELP)
               : ct_err_set(err, CT_EINVAL, "unrecognized option '%.64s'; did you mean --%s?",
                            at->word, at->nearest);
}

/* In "ctrun --help --warm" the topic is an option, which is no value otherwise. */
static const char *help_topic(const struct ct_option_parser *at)
{
    const char *next = at->argv[at->next];
    bool is_last = next != NULL && at->argv[at->next + 1] == NULL;
    return at->value == NULL && is_last && next[0] == '-' && ct_help_knows(next) ? next : at->value;
}

/* Refuses a word of which there is no help, and says what may be meant. */
static int refuse_topic(const char *topic, struct ct_err *err)
{
    static const char none[] = "--help: no text has the word";
    char option[NAME_MAX_LEN];
    (void)snprintf(option, sizeof(option), "--%s", topic + strspn(topic, "-"));
    const char *advice = advice_of_others(topic[0] == '-' ? topic : option);
    char kept[CT_HELP_WORD_MAX];
    const char *nearest = ct_help_nearest(topic, kept);
    if (advice != NULL) {
        return ct_err_set(err, CT_EINVAL, "%s '%.64s'; %s", none, topic, advice);
    }
    if (nearest != NULL) {
        return ct_err_set(err, CT_EINVAL, "%s '%.64s'; did you mean ctrun --help %s?", none, topic,
                          nearest);
    }
    struct ct_buf names = CT_BUF_INIT;
    ct_help_topics(&names);
    const char *text = ct_buf_cstr(&names);
    int rc = ct_err_set(err, CT_EINVAL, "%s '%.64s'; the topics are%s and all", none, topic,
                        text != NULL ? text : "");
    ct_buf_fini(&names);
    return rc;
}

static int take_help(const char *topic, struct ct_options *options, struct ct_err *err)
{
    if (topic != NULL && !ct_help_knows(topic)) {
        return refuse_topic(topic, err);
    }
    options->help = true;
    options->help_topic = topic;
    return 0;
}

static int take_option(const struct ct_option_parser *at, enum ct_option_result result,
                       struct ct_options *options, struct ct_err *err)
{
    if (result == CT_OPTION_UNKNOWN || result == CT_OPTION_AMBIGUOUS) {
        return refuse(at, result, at->word, err);
    }
    const struct ct_option_spec *spec = &ct_option_table[at->index];
    const char letter[] = {'-', spec->letter, '\0'};
    char name[NAME_MAX_LEN];
    (void)snprintf(name, sizeof(name), "--%s", spec->name);
    const char *origin = at->word[1] == '-' ? name : letter;
    if (result != CT_OPTION_FOUND && spec->id != CT_OPT_REFUSED) {
        return refuse(at, result, origin, err);
    }
    return spec->id == CT_OPT_HELP ? take_help(help_topic(at), options, err)
                                   : ct_option_apply(spec, origin, at->value, options, err);
}

/* Notices "--warm 2 x.py", where 2 would be the program: this value only follows an equals sign. */
static int check_lost_value(const struct ct_option_parser *at, const char *program,
                            struct ct_err *err)
{
    const struct ct_option_spec *spec = &ct_option_table[at->index];
    if (at->value != NULL || !spec->after_equals || program == NULL || program[0] == '\0') {
        return 0;
    }
    bool is_value = spec->id == CT_OPT_WARM
                        ? program[strspn(program, "0123456789")] == '\0'
                        : strcmp(program, "first") == 0 || strcmp(program, "each") == 0;
    if (!is_value) {
        return 0;
    }
    return ct_err_set(err, CT_EINVAL,
                      "--%s: its value follows an equals sign: --%s=%.64s (a program of this name "
                      "is ./%.64s)",
                      spec->name, spec->name, program, program);
}

/* The last word may have been meant as the program, as in "ctrun --report x.py", where it is
 * the `value` of the option `last`. NULL = it was none. */
static int refuse_no_program(const struct ct_option_spec *last, const char *value,
                             struct ct_err *err)
{
    if (last != NULL && last->metavar != NULL && strchr(last->metavar, '|') == NULL) {
        return ct_err_set(
            err, CT_EINVAL,
            "no program to run is given: '%.64s' is the %s of --%s (see ctrun --help)", value,
            last->metavar, last->name);
    }
    return ct_err_set(err, CT_EINVAL, "no program to run is given %s", SEE_HELP);
}

/* Behind --help and the like no option has an effect. A name that does not exist is refused all the
 * same, because whoever asks for help may have misspelt it. */
static int refuse_unknown(struct ct_option_parser *at, struct ct_err *err)
{
    enum ct_option_result result;
    while ((result = ct_option_next(at)) != CT_OPTION_END) {
        if (result == CT_OPTION_UNKNOWN) {
            return refuse(at, result, at->word, err);
        }
    }
    return 0;
}

/* --attach shows a job that runs: whatever else is asked for would have no effect. */
static int check_attach(const struct ct_options *options, struct ct_err *err)
{
    if (options->command[0] != NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "--attach shows a job that was started with --detach, and starts none: "
                          "leave out '%.64s'",
                          options->command[0]);
    }
    for (size_t i = 0; i < ct_option_count; i++) {
        const struct ct_option_spec *spec = &ct_option_table[i];
        if (spec->id != CT_OPT_ATTACH && ct_option_given(options, spec->id) == CT_GIVEN_FLAG) {
            return ct_err_set(err, CT_EINVAL,
                              "--attach shows a job that was started with --detach: leave out --%s",
                              spec->name);
        }
    }
    return 0;
}

static int parse_words(char *const *argv, struct ct_options *options, struct ct_err *err)
{
    struct ct_option_parser at = {
        .option_at = option_at,
        .argv = argv,
        .next = argv[0] != NULL ? 1 : 0,
        .dashed_no_values = true,
    };
    enum ct_option_result result;
    const struct ct_option_spec *last = NULL;
    const char *taken = NULL;
    while ((result = ct_option_next(&at)) != CT_OPTION_END) {
        int rc = take_option(&at, result, options, err);
        if (rc != 0) {
            return rc;
        }
        rc = check_lost_value(&at, argv[at.next], err);
        if (rc != 0) {
            return rc;
        }
        if (ct_options_only_print(options)) {
            return refuse_unknown(&at, err);
        }
        last = &ct_option_table[at.index];
        taken = at.value;
    }
    if (options->attach) {
        options->command = argv + at.next;
        return check_attach(options, err);
    }
    if (argv[at.next] == NULL && !options->preflight_only) {
        bool is_last = taken != NULL && taken == argv[at.next - 1];
        return refuse_no_program(is_last ? last : NULL, taken, err);
    }
    if (argv[at.next] != NULL && argv[at.next][0] == '\0') {
        return ct_err_set(err, CT_EINVAL, "the name of the program is empty");
    }
    options->command = argv + at.next;
    return 0;
}

/* --standalone means one machine, even if the variables of a pod name several. It is a mistake to
 * ask for several on the same command line. */
static int apply_standalone(struct ct_options *options, struct ct_err *err)
{
    if (options->min_nodes > 1 && ct_option_given(options, CT_OPT_NNODES) == CT_GIVEN_FLAG) {
        return ct_err_set(err, CT_EINVAL,
                          "--standalone is a job on this machine alone, --nnodes %d is not",
                          options->min_nodes);
    }
    options->min_nodes = 1;
    options->max_nodes = 1;
    options->spares = 0;
    options->node_rank = -1;
    return 0;
}

/* With etcd it is a list of addresses, which is read where it is used. */
static int parse_endpoint(struct ct_options *options, struct ct_err *err)
{
    static char *const no_logins[] = {NULL};
    struct ct_etcd_settings etcd;
    if (options->backend == CT_RDZV_ETCD) {
        return ct_etcd_settings_read(options->endpoint_text, no_logins, &etcd, err);
    }
    int rc = ct_endpoint_parse(options->endpoint_text, 0, &options->endpoint, err);
    options->has_endpoint = rc == 0;
    return rc;
}

/* Reads the endpoint, once the back end is known. */
static int read_endpoint(struct ct_options *options, struct ct_err *err)
{
    if (options->backend == CT_RDZV_ETCD && options->endpoint_text == NULL &&
        !options->standalone) {
        return ct_err_set(err, CT_EINVAL,
                          "--rdzv-backend etcd needs --rdzv-endpoint HOST[:PORT][,...]: where etcd "
                          "is");
    }
    if (options->endpoint_text != NULL && parse_endpoint(options, err) != 0) {
        bool flag = ct_option_given(options, CT_OPT_RDZV_ENDPOINT) == CT_GIVEN_FLAG;
        (void)ct_err_wrap(err, "%s", flag ? "--rdzv-endpoint" : "PET_RDZV_ENDPOINT");
        return CT_EINVAL;
    }
    return 0;
}

static int check_together(const struct ct_options *options, struct ct_err *err)
{
    if (options->detach && options->preflight_only) {
        return ct_err_set(err, CT_EINVAL,
                          "--detach and --preflight-only exclude each other: the table of the "
                          "preflight is for this terminal");
    }
    if (options->module && options->no_python) {
        return ct_err_set(err, CT_EINVAL, "--module and --no-python exclude each other");
    }
    if (options->has_endpoint && !options->endpoint.has_port && !options->standalone &&
        options->backend == CT_RDZV_STATIC) {
        return ct_err_set(err, CT_EINVAL,
                          "--rdzv-endpoint %.200s: the static back end needs a port, HOST:PORT",
                          options->endpoint.host);
    }
    return 0;
}

bool ct_options_name_address(const struct ct_options *options)
{
    return options->local_addr[0] != '\0' && !ct_addr_is_any(options->local_addr);
}

int ct_options_parse(char *const *argv, char *const *env, struct ct_options *out,
                     struct ct_err *err)
{
    struct ct_options options = {
        .nproc_kind = CT_NPROC_COUNT,
        .nproc = 1,
        .master_port = -1,
        .rdzv_conf = CT_RDZV_CONF_INIT,
        .min_nodes = 1,
        .max_nodes = 1,
        .node_rank = -1,
        .shutdown_timeout_ms = -1,
        .hang_timeout_ns = -1,
        .on_hang = CT_ON_HANG_RESTART,
        .hang_stacks_ms = 5000,
        .health_check_timeout = 30,
        .role = "default",
        .signals = CT_SIGNALS_DEFAULT,
        .launch_agent = "ssh",
    };
    struct ct_err env_err = {0};
    /* --help must work whatever the environment says, so its errors wait for the command line. */
    int env_rc = apply_environment(env, &options, &env_err);
    int rc = parse_words(argv, &options, err);
    if (rc != 0) {
        return rc;
    }
    if (ct_options_only_print(&options)) {
        *out = options;
        return 0;
    }
    if (env_rc != 0) {
        return ct_err_set(err, env_rc, "%s", env_err.text);
    }
    rc = apply_torchrun_variables(env, &options, err);
    if (rc != 0) {
        return rc;
    }
    if (options.limits.window_restarts > 0 &&
        ct_option_given(&options, CT_OPT_MAX_RESTARTS) == CT_GIVEN_NOT) {
        options.max_restarts = INT_MAX; /* the budget is the only limit */
    }
    if (options.preflight_only && options.preflight == CT_PREFLIGHT_OFF) {
        options.preflight = CT_PREFLIGHT_FIRST;
    }
    rc = options.standalone ? apply_standalone(&options, err) : 0;
    if (rc != 0) {
        return rc;
    }
    rc = read_endpoint(&options, err);
    if (rc == 0) {
        rc = check_together(&options, err);
    }
    if (rc != 0) {
        return rc;
    }
    *out = options;
    return 0;
}
