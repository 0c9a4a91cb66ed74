/* SPDX-License-Identifier: Apache-2.0
 *
 * Options may follow the address, because people write `ctrun-stat node7 --watch`. Reading ends at
 * --help and --version, so that they work whatever follows.
 */
#include "rendezvous/ctrun-stat/stat_options.h"

#include "common/num.h"
#include "common/option_parser.h"
#include "rendezvous/ctrdzvd/daemon_options.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_TIMEOUT_S 5
#define MAX_TIMEOUT_S 3600

const char ct_stat_help[] =
    "usage: ctrun-stat [--json | --health | --stacks] [--watch] [--token-file FILE]\n"
    "                  [--timeout SECONDS]\n"
    "                  [HOST[:PORT] | PORT | http://HOST:PORT/ | ID | PID]\n"
    "       ctrun-stat --read-key [--token-file FILE]\n"
    "\n"
    "Shows the status of a job and its store. The address of a live page will do, and so\n"
    "will the id of one of this user's jobs on this machine, the beginning of the id, or\n"
    "the process id of its ctrun.\n"
    "\n"
    "Without any it asks the store at MASTER_ADDR and MASTER_PORT. If these are not set,\n"
    "it looks for this user's jobs on this machine: it asks the store of the only one, or\n"
    "prints a list of several, with their ids and programs. If there is none, it asks\n"
    "127.0.0.1:29500.\n"
    "\n"
    "  --json             print the status as JSON, see ctstatus(5)\n"
    "  --health           print only healthy, or degraded and why, in one line\n"
    "  --stacks           print where the workers stand: the lines of their programs\n"
    "  --read-key         print the key with which Prometheus may read a job with a token\n"
    "  --token-file FILE  the secret of the job's machines, which the status from another\n"
    "                     machine, stacks and the read key need; else CTRUN_TOKEN\n"
    "  --watch            ask again every second; keys on a terminal: s sorts, g groups,\n"
    "                     arrows scroll, q quits\n"
    "  --timeout SECONDS  how long to wait for an answer (default 5)\n"
    "  -V, --version      print the version and exit\n"
    "  -h, --help         print this and exit\n"
    "\n"
    "Exits with 0 if healthy, 1 if degraded, 2 if nobody answers or gives a stack, 3 after\n"
    "a wrong option, or if --json, --health, --stacks or --watch must know which of several\n"
    "jobs is meant.\n";

static bool is_set(const char *variable)
{
    return variable != NULL && variable[0] != '\0';
}

/* Gives HOST:PORT of the address of a live page, http://HOST:PORT/#key=KEY, and any other text as
 * it is. The key is left alone: a browser can use it once, and nobody must send it in the clear. */
static int cut_address(const char *argument, char out[CT_ADDR_JOIN_MAX], struct ct_err *err)
{
    static const char http[] = "http://", https[] = "https://";
    const char *from = argument;
    if (strncasecmp(argument, https, sizeof(https) - 1) == 0) {
        return ct_err_set(err, CT_EINVAL, "the store speaks no HTTPS: write http://%.*s",
                          CT_HOST_MAX, argument + sizeof(https) - 1);
    }
    if (strncasecmp(argument, http, sizeof(http) - 1) == 0) {
        from = argument + sizeof(http) - 1;
    }
    if (from == argument && strstr(argument, "://") != NULL) {
        return ct_err_set(err, CT_EINVAL, "the store speaks HTTP: write http://%.*s", CT_HOST_MAX,
                          strstr(argument, "://") + strlen("://"));
    }
    size_t len = strcspn(from, "/?#");
    if (len >= CT_ADDR_JOIN_MAX) {
        return ct_err_set(err, CT_ELIMIT, "the address has more than %zu characters",
                          CT_ADDR_JOIN_MAX - 1);
    }
    memcpy(out, from, len);
    out[len] = '\0';
    return 0;
}

int ct_stat_options_where(const char *argument, const char *master_addr, const char *master_port,
                          struct ct_endpoint *out, bool *is_default, struct ct_err *err)
{
    char address[CT_ADDR_JOIN_MAX];
    const char *text = argument != NULL ? address : NULL;
    int own_port = 0;
    int bad = argument != NULL ? cut_address(argument, address, err) : 0;
    if (bad != 0) {
        return bad;
    }
    if (text != NULL && text[0] != '\0' && text[strspn(text, "0123456789")] == '\0') {
        /* A number alone is a port, because no host has a number for its name, and the process ids
         * of jobs were looked for before. */
        if (ct_parse_int(text, 1, UINT16_MAX, &own_port) != 0) {
            return ct_err_set(err, CT_EINVAL,
                              "'%s' is neither the process id of a job of yours here nor a port, "
                              "which is a number from 1 to 65535",
                              text);
        }
        text = NULL;
    }
    if (text == NULL) {
        text = is_set(master_addr) ? master_addr : "127.0.0.1";
    }
    struct ct_endpoint where;
    int rc = ct_endpoint_parse(text, CT_DEFAULT_STORE_PORT, &where, err);
    if (rc != 0) {
        return argument != NULL ? rc : ct_err_wrap(err, "MASTER_ADDR");
    }
    if (where.has_port && where.port == 0) {
        rc = ct_err_set(err, CT_EINVAL, "address '%s': port '0' is not a number from 1 to 65535",
                        text);
        return argument != NULL ? rc : ct_err_wrap(err, "MASTER_ADDR");
    }
    int port = own_port > 0 ? own_port : where.port;
    if (own_port == 0 && !where.has_port && is_set(master_port) &&
        ct_parse_int(master_port, 1, UINT16_MAX, &port) != 0) {
        return ct_err_set(err, CT_EINVAL, "MASTER_PORT '%s' is not a number from 1 to 65535",
                          master_port);
    }
    where.port = (uint16_t)port;
    *out = where;
    *is_default = argument == NULL && !is_set(master_addr) && !is_set(master_port);
    return 0;
}

static int take_form(enum ct_stat_action form, struct ct_stat_options *o, struct ct_err *err)
{
    if (o->action != CT_STAT_TABLE && o->action != form) {
        return ct_err_set(err, CT_EINVAL,
                          "--json, --health, --stacks and --read-key exclude each other");
    }
    o->action = form;
    return 0;
}

enum option { JSON, HEALTH, STACKS, READ_KEY, TOKEN_FILE, WATCH, TIMEOUT, VERSION, HELP };

static struct ct_option option_at(size_t index)
{
    static const struct ct_option table[] = {
        [JSON] = {"json"},
        [HEALTH] = {"health"},
        [STACKS] = {"stacks"},
        [READ_KEY] = {"read-key"},
        [TOKEN_FILE] = {"token-file", .value = CT_VALUE_NEEDED},
        [WATCH] = {"watch"},
        [TIMEOUT] = {"timeout", .value = CT_VALUE_NEEDED},
        [VERSION] = {"version", 'V'},
        [HELP] = {"help", 'h'},
        {NULL},
    };
    return table[index];
}

static int take(enum option option, const char *value, struct ct_stat_options *o,
                struct ct_err *err)
{
    switch (option) {
    case JSON:
        return take_form(CT_STAT_JSON, o, err);
    case HEALTH:
        return take_form(CT_STAT_HEALTH, o, err);
    case STACKS:
        return take_form(CT_STAT_STACKS, o, err);
    case READ_KEY:
        return take_form(CT_STAT_READ_KEY, o, err);
    case TOKEN_FILE:
        o->token_file = value;
        return 0;
    case WATCH:
        o->watch = true;
        return 0;
    case TIMEOUT:
        if (ct_parse_int(value, 1, MAX_TIMEOUT_S, &o->timeout_s) != 0) {
            return ct_err_set(err, CT_EINVAL, "--timeout '%s' is not a number from 1 to %d", value,
                              MAX_TIMEOUT_S);
        }
        return 0;
    case VERSION:
        o->action = CT_STAT_VERSION;
        return 0;
    case HELP:
        o->action = CT_STAT_HELP;
        return 0;
    }
    return CT_EINVAL;
}

static int take_argument(const char *word, const char **argument, struct ct_err *err)
{
    if (*argument != NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "argument '%s' is one too many: name one job or address, and quote an id "
                          "that has blanks",
                          word);
    }
    *argument = word;
    return 0;
}

int ct_stat_options_parse(int argc, char **argv, struct ct_stat_options *out, struct ct_err *err)
{
    struct ct_stat_options o = {.action = CT_STAT_TABLE, .timeout_s = DEFAULT_TIMEOUT_S};
    struct ct_option_parser at = {.option_at = option_at, .argv = argv, .next = 1};
    const char *argument = NULL;
    (void)argc;
    for (;;) {
        enum ct_option_result result = ct_option_next(&at);
        if (result == CT_OPTION_END && (at.word == NULL || strcmp(at.word, "--") == 0)) {
            break;
        }
        int rc = result == CT_OPTION_FOUND ? take((enum option)at.index, at.value, &o, err)
                 : result == CT_OPTION_END ? take_argument(argv[at.next++], &argument, err)
                                           : ct_option_refuse(&at, result, err);
        if (rc != 0) {
            return rc;
        }
        if (o.action == CT_STAT_VERSION || o.action == CT_STAT_HELP) {
            *out = o;
            return 0;
        }
    }
    for (; argv[at.next] != NULL; at.next++) {
        int rc = take_argument(argv[at.next], &argument, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (o.action == CT_STAT_READ_KEY && (argument != NULL || o.watch)) {
        return ct_err_set(err, CT_EINVAL, "--read-key asks no store: leave out %s",
                          argument != NULL ? argument : "--watch");
    }
    o.argument = argument;
    *out = o;
    return 0;
}
