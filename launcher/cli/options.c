/* SPDX-License-Identifier: Apache-2.0
 *
 * Not getopt_long(3): it takes an option's value to be whatever word follows, knows no underscores,
 * and would print by itself; argparse, whose habits torchrun's users have, differs in all three.
 */
#include "launcher/cli/options.h"

#include "common/num.h"
#include "common/suggest.h"
#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"
#include "launcher/util/environ.h"
#include "launcher/util/signals.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Longer than every option's name; longer words on the command line match none. */
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

/* torchrun's own variable for the shutdown time; weaker than the option and its PET_ variable. */
static int apply_shutdown_timeout(char *const *env, struct ct_options *options, struct ct_err *err)
{
    static const char name[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    static const struct ct_option_spec spec = {.id = CT_OPT_SHUTDOWN_TIMEOUT};
    const char *value = ct_environ_get(env, name);
    if (options->shutdown_timeout_ms >= 0) {
        return 0;
    }
    if (value != NULL && value[0] != '\0') {
        return ct_option_apply(&spec, name, value, options, err);
    }
    options->shutdown_timeout_ms = SHUTDOWN_TIMEOUT_MS;
    return 0;
}

/* ---- command line ---------------------------------------------------------------------------- */

struct cursor {
    char *const *argv;
    int next; /* the word to read next */
};

/* Would argparse take this word for an option? Then it cannot be an option's value: in
 * "--log-dir --standalone x.py" the folder was forgotten, it is not called "--standalone". Negative
 * numbers are values. */
static bool looks_like_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && !isdigit((unsigned char)word[1]) && word[1] != '.';
}

static int take_value(struct cursor *at, const char *origin, const char **out, struct ct_err *err)
{
    const char *word = at->argv[at->next];
    if (word == NULL || looks_like_option(word)) {
        return ct_err_set(err, CT_EINVAL, "%s: a value must follow %s", origin, SEE_HELP);
    }
    at->next++;
    *out = word;
    return 0;
}

/* `name` is the word without dashes in front of it and without "=value". */
static int unrecognized(const char *word, const char *name, size_t len, struct ct_err *err)
{
    struct ct_suggestion near = ct_suggestion_for(name, len);
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_table[i].help != NULL) {
            ct_suggestion_offer(&near, ct_option_table[i].name);
        }
    }
    if (near.name == NULL) {
        return ct_err_set(err, CT_EINVAL, "unrecognized option '%.64s' %s", word, SEE_HELP);
    }
    return ct_err_set(err, CT_EINVAL, "unrecognized option '%.64s'; did you mean --%s?", word,
                      near.name);
}

/* The one option that has this name, exactly or as an abbreviation. Options that are refused take
 * part, so that "--log" does not become "--log-dir" today and ambiguous tomorrow. Options that only
 * ctrun has give way: "--re" stays "--redirects". */
static int find_long(const char *name, const char *word, const struct ct_option_spec **out,
                     struct ct_err *err)
{
    const struct ct_option_spec *found = NULL, *other = NULL;
    size_t len = strlen(name), more = 0; /* than these two */
    for (size_t i = 0; i < ct_option_count; i++) {
        const struct ct_option_spec *spec = &ct_option_table[i];
        if (strcmp(spec->name, name) == 0) {
            *out = spec;
            return 0;
        }
        if (strncmp(spec->name, name, len) != 0) {
            continue;
        }
        if (found != NULL && found->own == spec->own) {
            more += other != NULL;
            other = other != NULL ? other : spec;
        }
        if (found == NULL || (found->own && !spec->own)) {
            found = spec;
            other = NULL;
            more = 0;
        }
    }
    if (other != NULL) {
        return more == 0
                   ? ct_err_set(err, CT_EINVAL, "%.64s is ambiguous: --%s or --%s?", word,
                                found->name, other->name)
                   : ct_err_set(err, CT_EINVAL, "%.64s is ambiguous: --%s, --%s or %zu other%s?",
                                word, found->name, other->name, more, more == 1 ? "" : "s");
    }
    if (found == NULL) {
        return unrecognized(word, name, len, err);
    }
    *out = found;
    return 0;
}

/* Its topic is behind '=' or the next word; a word that cannot be one is left alone. */
static int take_help(struct cursor *at, const char *topic, struct ct_options *options,
                     struct ct_err *err)
{
    if (topic == NULL && at->argv[at->next] != NULL && !looks_like_option(at->argv[at->next])) {
        topic = at->argv[at->next++];
    }
    if (topic != NULL && !ct_help_knows(topic)) {
        return ct_err_set(
            err, CT_EINVAL,
            "--help: '%.64s' is neither a topic nor an option; ctrun --help lists them", topic);
    }
    options->help = true;
    options->help_topic = topic;
    return 0;
}

static int parse_long(struct cursor *at, struct ct_options *options, struct ct_err *err)
{
    const char *word = at->argv[at->next++];
    const char *value = strchr(word, '=');
    size_t len = value != NULL ? (size_t)(value - word) - 2 : strlen(word) - 2;
    char name[NAME_MAX_LEN], origin[NAME_MAX_LEN + 2];
    const struct ct_option_spec *spec = NULL;

    /* An empty name would be a prefix of every option. */
    if (len == 0 || len >= sizeof(name)) {
        return ct_err_set(err, CT_EINVAL, "unrecognized option '%.64s' %s", word, SEE_HELP);
    }
    for (size_t i = 0; i < len; i++) {
        name[i] = word[2 + i] == '_' ? '-' : word[2 + i];
    }
    name[len] = '\0';
    int rc = find_long(name, word, &spec, err);
    if (rc != 0 || spec == NULL) {
        return rc;
    }
    (void)snprintf(origin, sizeof(origin), "--%s", spec->name);
    if (spec->id == CT_OPT_REFUSED) {
        return ct_option_apply(spec, origin, NULL, options, err);
    }
    if (spec->id == CT_OPT_HELP) {
        return take_help(at, value != NULL ? value + 1 : NULL, options, err);
    }
    if (value != NULL) {
        if (spec->metavar == NULL) {
            return ct_err_set(err, CT_EINVAL, "%s takes no value", origin);
        }
        value++;
    } else if (spec->metavar != NULL) {
        rc = take_value(at, origin, &value, err);
        if (rc != 0) {
            return rc;
        }
    }
    return ct_option_apply(spec, origin, value, options, err);
}

static const struct ct_option_spec *find_letter(char letter)
{
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_table[i].letter == letter) {
            return &ct_option_table[i];
        }
    }
    return NULL;
}

/* "-np N", as mpirun's users type it, is "-n N". */
static bool is_np(const char *word)
{
    return strncmp(word, "-np", 3) == 0 && (word[3] == '\0' || word[3] == '=');
}

/* "-m", "-r 3", "-r3", "-r=3", "-mr3". */
static int parse_short(struct cursor *at, struct ct_options *options, struct ct_err *err)
{
    const char *word = at->argv[at->next++];
    for (const char *p = word + 1; *p != '\0'; p++) {
        const struct ct_option_spec *spec = find_letter(*p);
        if (spec == NULL) {
            return unrecognized(word, word + 1, strcspn(word + 1, "="), err);
        }
        if (spec->id == CT_OPT_HELP) {
            return take_help(at, p[1] == '=' ? p + 2 : NULL, options, err);
        }
        const char origin[] = {'-', *p, '\0'};
        p += is_np(word);
        if (spec->metavar == NULL) {
            int rc = ct_option_apply(spec, origin, NULL, options, err);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        const char *value = p[1] == '=' ? p + 2 : p + 1;
        if (p[1] == '\0') {
            int rc = take_value(at, origin, &value, err);
            if (rc != 0) {
                return rc;
            }
        }
        return ct_option_apply(spec, origin, value, options, err);
    }
    return 0;
}

static int parse_words(char *const *argv, struct ct_options *options, struct ct_err *err)
{
    struct cursor at = {argv, argv[0] != NULL ? 1 : 0};
    for (const char *word; (word = argv[at.next]) != NULL && word[0] == '-' && word[1] != '\0';) {
        if (strcmp(word, "--") == 0) {
            at.next++;
            break;
        }
        int rc = word[1] == '-' ? parse_long(&at, options, err) : parse_short(&at, options, err);
        if (rc != 0 || ct_options_only_print(options)) {
            return rc;
        }
    }
    if (argv[at.next] == NULL) {
        return ct_err_set(err, CT_EINVAL, "no program to run is given %s", SEE_HELP);
    }
    if (argv[at.next][0] == '\0') {
        return ct_err_set(err, CT_EINVAL, "the name of the program is empty");
    }
    options->command = argv + at.next;
    return 0;
}

/* What one option cannot tell by itself. */
/* --standalone is one machine. What a pod's environment says of more is overruled; a command line
 * that says both is a slip. */
static int settle_standalone(struct ct_options *options, struct ct_err *err)
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

static int check_together(const struct ct_options *options, struct ct_err *err)
{
    if (options->module && options->no_python) {
        return ct_err_set(err, CT_EINVAL, "--module and --no-python exclude each other");
    }
    if (options->node_rank >= options->max_nodes + options->spares &&
        ct_option_given(options, CT_OPT_NNODES) != CT_GIVEN_NOT) {
        return ct_err_set(err, CT_EINVAL,
                          "--node-rank %d: ranks of %d node%s go from 0 to %d (see --nnodes)",
                          options->node_rank, options->max_nodes,
                          options->max_nodes == 1 ? "" : "s", options->max_nodes - 1);
    }
    if (options->has_endpoint && !options->endpoint.has_port && !options->standalone &&
        options->backend == CT_RDZV_STATIC) {
        return ct_err_set(err, CT_EINVAL,
                          "--rdzv-endpoint %.200s: the static back end needs a port, HOST:PORT",
                          options->endpoint.host);
    }
    return 0;
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
    if (!ct_options_only_print(&options)) {
        if (env_rc != 0) {
            return ct_err_set(err, env_rc, "%s", env_err.text);
        }
        rc = apply_shutdown_timeout(env, &options, err);
        const char *prefix = ct_environ_get(env, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
        if (options.prefix_template == NULL && prefix != NULL && prefix[0] != '\0') {
            options.prefix_template = prefix;
        }
        rc = rc != 0 || !options.standalone ? rc : settle_standalone(&options, err);
        rc = rc != 0 ? rc : check_together(&options, err);
        if (rc != 0) {
            return rc;
        }
    }
    *out = options;
    return 0;
}
