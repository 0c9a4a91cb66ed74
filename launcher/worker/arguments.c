/* SPDX-License-Identifier: Apache-2.0
 *
 * torchrun replaces ${local_rank} and $local_rank, and nothing else. The names that it does not
 * know are replaced in braces only, so that a shell's own $rank stays.
 *
 * A name that is not known stays as it is, because `sh -c 'echo ${HOME}'` means the shell's. But
 * ${world-size} and ${Rank} are refused: the program would get this text as a number, in each
 * worker.
 */
#include "launcher/worker/arguments.h"

#include "common/suggest.h"
#include "launcher/util/template.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* In the order in which fill() has the values. */
enum { RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, NNODES, MASTER_PORT, NUMBERS };
static const char *const number_names[NUMBERS] = {
    "rank", "world_size", "local_rank", "local_world_size", "node_rank", "nnodes", "master_port",
};
#define MASTER_ADDR_NAME "master_addr"
#define PORT_PREFIX "port:"
#define VARS_MAX (NUMBERS + 1 + CT_JOB_PORTS_MAX)

/* So many typing errors are a mistake; words that differ in more are different words. */
#define NEAR 2
/* How much of an argument a message repeats. */
#define SHOWN_MAX 80

/* ---- before the job ---------------------------------------------------------------------------
 */

static bool is_same(const char *name, size_t len, const char *other)
{
    return strlen(other) == len && memcmp(other, name, len) == 0;
}

/* Returns the name that was meant, if this one is not a name but differs from one in so little that
 * it is a mistake and no other word. */
static const char *meant_by(const char *name, size_t len)
{
    struct ct_suggestion nearest = ct_suggestion_for(name, len);
    for (int i = 0; i <= NUMBERS; i++) {
        const char *known = i < NUMBERS ? number_names[i] : MASTER_ADDR_NAME;
        if (is_same(name, len, known)) {
            return NULL;
        }
        ct_suggestion_offer(&nearest, known);
    }
    return nearest.distance <= NEAR ? nearest.name : NULL;
}

/* A name of ours has small letters; one with large ones only is a variable of a shell. Our names
 * with dashes are mistakes, too. */
static size_t small_name(const char *p)
{
    return strspn(p, "abcdefghijklmnopqrstuvwxyz_-");
}

/* Leaves out blanks at both ends. */
static void trim(const char **text, size_t *len)
{
    while (*len > 0 && **text == ' ') {
        (*text)++;
        (*len)--;
    }
    while (*len > 0 && (*text)[*len - 1] == ' ') {
        (*len)--;
    }
}

/* Returns the name that was meant by ${Rank} or ${ rank }. ${RANK} is a shell's: workers have it.
 */
static const char *spelt_otherwise(const char *name, size_t len)
{
    trim(&name, &len);
    for (int i = 0; i <= NUMBERS; i++) {
        const char *known = i < NUMBERS ? number_names[i] : MASTER_ADDR_NAME;
        bool same = strlen(known) == len && strncasecmp(known, name, len) == 0;
        if (same && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") < len) {
            return known;
        }
    }
    return NULL;
}

static bool is_port_name(const char *name, size_t len)
{
    return len > 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") >= len &&
           strchr("0123456789", name[0]) == NULL;
}

/* Is it "port" with one letter too many or too few, or with two of them exchanged? Another letter
 * makes another word, such as "part", and ${part:n} is a shell's. */
static bool looks_like_port(const char *word, size_t len)
{
    static const char port[] = "port";
    struct ct_suggestion near = ct_suggestion_for(word, len);
    ct_suggestion_offer(&near, port);
    bool exchanged = len == 4 && word[0] == 'p' && strspn(word, port) == 4 &&
                     strchr(word, 'o') < word + 4 && memcmp(word, port, 4) != 0;
    return word[0] == 'p' && (exchanged || ((len == 3 || len == 5) && near.distance == 1));
}

/* Notices ${ports:NAME}, ${PORT:NAME} and ${port: NAME}. */
static int check_port_word(const char *argument, const char *name, size_t len, struct ct_err *err)
{
    const char *colon = memchr(name, ':', len);
    size_t word = colon != NULL ? (size_t)(colon - name) : 0;
    bool same = word == sizeof("port") - 1 && strncasecmp(name, "port", word) == 0;
    if (!same && (word == 0 || small_name(name) < word || !looks_like_port(name, word))) {
        return 0;
    }
    const char *meant = colon + 1;
    size_t meant_len = len - word - 1;
    trim(&meant, &meant_len);
    if (!is_port_name(meant, meant_len)) {
        return 0;
    }
    return ct_err_set(err, CT_EINVAL,
                      "argument '%.*s': did you mean ${port:%.*s}? For this very text write two "
                      "dollar signs",
                      SHOWN_MAX, argument, (int)meant_len, meant);
}

/* Notices an argument that is $port:NAME, or --option=$port:NAME, without braces. Within a longer
 * text it may be a shell's. */
static int check_bare_port(const char *argument, const char *dollar, struct ct_err *err)
{
    const size_t prefix = sizeof(PORT_PREFIX) - 1;
    const char *name = dollar + 1 + prefix;
    if (strncmp(dollar + 1, PORT_PREFIX, prefix) != 0 || !is_port_name(name, strlen(name)) ||
        (dollar != argument && (argument[0] != '-' || dollar[-1] != '='))) {
        return 0;
    }
    return ct_err_set(err, CT_EINVAL,
                      "argument '%.*s': did you mean ${port:%.*s}? For this very text write two "
                      "dollar signs",
                      SHOWN_MAX, argument, SHOWN_MAX, name);
}

/* Is what follows "port:" meant as a name? ${port:-8080} and ${port:1:2} are a shell's, and so is
 * ${port:1}, but not ${port:1x}. */
static bool is_meant_as_name(const char *text, size_t len)
{
    size_t digits = strspn(text, "0123456789");
    if (digits > 0) {
        return digits < len && is_port_name(text + digits, len - digits);
    }
    return strchr("-+=?: ", text[0]) == NULL;
}

static int check_reference(const char *argument, const char *name, struct ct_job_ports *ports,
                           struct ct_err *err)
{
    const size_t prefix = sizeof(PORT_PREFIX) - 1;
    size_t len = strcspn(name, "}");
    if (name[len] == '\0') {
        return 0;
    }
    if (strncmp(name, PORT_PREFIX, prefix) == 0 && is_meant_as_name(name + prefix, len - prefix)) {
        int rc = ct_job_ports_add(ports, name + prefix, len - prefix, err);
        return rc == 0 ? 0 : ct_err_wrap(err, "argument '%.*s'", SHOWN_MAX, argument);
    }
    int rc = check_port_word(argument, name, len, err);
    if (rc != 0) {
        return rc;
    }
    const char *meant = small_name(name) == len ? meant_by(name, len) : spelt_otherwise(name, len);
    if (meant != NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "argument '%.*s': ${%.*s} is no value of a worker; did you mean ${%s}? "
                          "For this very text write two dollar signs",
                          SHOWN_MAX, argument, (int)len, name, meant);
    }
    return 0;
}

int ct_arguments_check(char *const *argv, struct ct_job_ports *ports, struct ct_err *err)
{
    for (size_t i = 1; argv[0] != NULL && argv[i] != NULL; i++) {
        for (const char *p = argv[i]; (p = strchr(p, '$')) != NULL;) {
            int rc = p[1] == '{' ? check_reference(argv[i], p + 2, ports, err)
                                 : check_bare_port(argv[i], p, err);
            if (rc != 0) {
                return rc;
            }
            p += p[1] == '$' ? 2 : 1;
        }
    }
    return 0;
}

/* ---- for one worker ---------------------------------------------------------------------------
 */

struct values {
    struct ct_template_var vars[VARS_MAX];
    size_t count;
    char numbers[NUMBERS][16];
    char port_names[CT_JOB_PORTS_MAX][sizeof(PORT_PREFIX) + CT_JOB_PORT_NAME_MAX];
    char port_numbers[CT_JOB_PORTS_MAX][8];
};

static void fill(struct values *values, const struct ct_worker_env *env, int index)
{
    const int numbers[NUMBERS] = {
        [RANK] = env->first_rank + index,
        [WORLD_SIZE] = env->world_size,
        [LOCAL_RANK] = env->first_local_rank + index,
        [LOCAL_WORLD_SIZE] = env->local_world_size,
        [NODE_RANK] = env->node_rank,
        [NNODES] = env->node_count,
        [MASTER_PORT] = env->master_port,
    };
    values->count = 0;
    for (int i = 0; i < NUMBERS; i++) {
        (void)snprintf(values->numbers[i], sizeof(values->numbers[i]), "%d", numbers[i]);
        values->vars[values->count++] =
            (struct ct_template_var){number_names[i], values->numbers[i], i != LOCAL_RANK};
    }
    values->vars[values->count++] = (struct ct_template_var){
        MASTER_ADDR_NAME, env->master_addr != NULL ? env->master_addr : "", true};
    for (int i = 0; env->ports != NULL && i < env->ports->count; i++) {
        const struct ct_job_port *port = &env->ports->list[i];
        (void)snprintf(values->port_names[i], sizeof(values->port_names[i]), PORT_PREFIX "%s",
                       port->name);
        (void)snprintf(values->port_numbers[i], sizeof(values->port_numbers[i]), "%u",
                       (unsigned)port->port);
        values->vars[values->count++] =
            (struct ct_template_var){values->port_names[i], values->port_numbers[i], true};
    }
}

static int check_ports(const struct ct_job_ports *ports, struct ct_err *err)
{
    for (int i = 0; ports != NULL && i < ports->count; i++) {
        if (ports->list[i].port == 0) {
            return ct_err_set(
                err, CT_ENOENT,
                "the machine of rank 0 has reserved no port '%s': start the same "
                "version of ctrun and ctrdzvd, with the same arguments, on every machine",
                ports->list[i].name);
        }
    }
    return 0;
}

int ct_arguments_expand(char *const *argv, const struct ct_worker_env *env, int index,
                        struct ct_strlist *out, struct ct_err *err)
{
    struct values values;
    int rc = check_ports(env->ports, err);
    if (rc != 0) {
        return rc;
    }
    fill(&values, env, index);
    for (size_t i = 0; argv[i] != NULL; i++) {
        bool fixed = i == 0 || strchr(argv[i], '$') == NULL;
        rc = fixed ? ct_strlist_borrow(out, argv[i]) : ct_strlist_begin(out);
        if (rc == 0 && !fixed) {
            rc = ct_template_expand(argv[i], values.vars, values.count, &out->text);
            ct_buf_add(&out->text, "", 1);
        }
        if (rc != 0 || ct_buf_status(&out->text) != 0) {
            return ct_err_set(err, CT_ENOMEM, "out of memory");
        }
    }
    return ct_strlist_close(out) == 0 ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}
