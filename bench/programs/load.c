/* SPDX-License-Identifier: Apache-2.0
 *
 * The load generator's main: reads the options, sees to it that the process ends by itself and may
 * open enough sockets, and runs the measurement that was asked for.
 */
#include "bench/programs/load.h"

#include "common/clock.h"
#include "common/num.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static const char help[] =
    "usage: bench-load rate|connect|barrier|wake|idle --port N [options]\n"
    "  --protocol tcpstore|redis|echo   what the server speaks (tcpstore)\n"
    "  --op get|set                     what rate does, 16 bytes each (get)\n"
    "  --connections N                  (1)\n"
    "  --depth N                        requests on their way per connection (1)\n"
    "  --seconds S                      how long rate measures (0.5)\n"
    "  --server-pid PID                 count this process' CPU time\n"
    "  --native                         barrier by BARRIER, not by ADD and WAIT\n"
    "Prints one line of JSON. bench/store.py runs it.\n";

double load_now(void)
{
    return (double)ct_clock_now(NULL) / (double)CT_NS_PER_S;
}

void load_fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)fputs("bench-load: ", stderr);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static int64_t number(const char *option, const char *text, int64_t max)
{
    int64_t n;
    if (ct_parse_i64(text, 1, max, &n) != 0) {
        load_fail("--%s '%s': not a number from 1 to %lld", option, text, (long long)max);
    }
    return n;
}

/* Index of `text` among `names`. */
static int choice(const char *option, const char *text, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    load_fail("--%s '%s' is not known", option, text);
}

static void parse(int argc, char **argv, struct load_options *options)
{
    static const struct option known[] = {
        {"protocol", required_argument, NULL, 'p'},
        {"op", required_argument, NULL, 'o'},
        {"port", required_argument, NULL, 'P'},
        {"connections", required_argument, NULL, 'c'},
        {"depth", required_argument, NULL, 'd'},
        {"seconds", required_argument, NULL, 's'},
        {"server-pid", required_argument, NULL, 'S'},
        {"native", no_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    static const char *const protocols[] = {"tcpstore", "redis", "echo", NULL};
    static const char *const ops[] = {"get", "set", NULL};
    *options = (struct load_options){.connections = 1, .depth = 1, .seconds = 0.5};
    int c, index = 0;
    while ((c = getopt_long(argc, argv, "", known, &index)) != -1) {
        const char *name = known[index].name;
        if (c == 'p') {
            options->protocol = (enum load_protocol)choice(name, optarg, protocols);
        } else if (c == 'o') {
            options->op = (enum load_op)choice(name, optarg, ops);
        } else if (c == 'P') {
            options->port = (uint16_t)number(name, optarg, UINT16_MAX);
        } else if (c == 'c') {
            options->connections = (size_t)number(name, optarg, 1000000);
        } else if (c == 'd') {
            options->depth = (size_t)number(name, optarg, 1000);
        } else if (c == 's') {
            if (ct_parse_double(optarg, 0.001, LOAD_MAX_SECONDS, &options->seconds) != 0) {
                load_fail("--seconds '%s' is no time", optarg);
            }
        } else if (c == 'S') {
            options->server_pid = (long)number(name, optarg, INT32_MAX);
        } else if (c == 'n') {
            options->native = true;
        } else {
            (void)fputs(help, stderr);
            exit(2);
        }
    }
    if (optind != argc - 1 || options->port == 0) {
        (void)fputs(help, stderr);
        exit(2);
    }
    options->mode = argv[optind];
}

static void raise_descriptors(size_t connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        load_fail("getrlimit: %s", strerror(errno));
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (connections + 16 > limit.rlim_cur) {
        load_fail("%zu connections need more than the %llu descriptors a process may have here",
                  connections, (unsigned long long)limit.rlim_cur);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct load_options *options);
    } modes[] = {
        {"rate", load_run_rate}, {"connect", load_run_connect}, {"barrier", load_run_barrier},
        {"wake", load_run_wake}, {"idle", load_run_idle},
    };
    struct load_options options;
    parse(argc, argv, &options);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)alarm(LOAD_MAX_SECONDS);
    raise_descriptors(options.connections);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(options.mode, modes[i].name) == 0) {
            modes[i].run(&options);
            return 0;
        }
    }
    load_fail("mode '%s' is not known", options.mode);
}
