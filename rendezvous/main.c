/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrdzvd: the store as a program of its own. Options, the loop, two signals; all else is the
 * library. Exit codes: 0 ended by SIGTERM or SIGINT, 1 failure, 2 usage.
 */
#include "common/addr.h"
#include "common/num.h"
#include "rendezvous/server_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXIT_USAGE 2
/* PyTorch's default port of a store. */
#define DEFAULT_PORT 29500

struct config {
    const char *host;
    uint16_t port;
    int ready_fd; /* -1 = none */
};

struct daemon {
    uv_loop_t loop;
    uv_signal_t sigterm, sigint;
    struct ct_server *server;
};

/* ---- options -------------------------------------------------------------------------------- */

static void print_help(void)
{
    (void)printf("usage: ctrdzvd [--listen ADDR] [--port N] [--ready-fd N]\n"
                 "\n"
                 "Serves the key/value store of distributed jobs (PyTorch's TCPStore protocol).\n"
                 "\n"
                 "  --listen ADDR   address to listen on; '*' = all (default 127.0.0.1)\n"
                 "  --port N        port to listen on; 0 = any free one (default %d)\n"
                 "  --ready-fd N    write the port and a newline there when ready, then close it\n"
                 "  --version       print the version and exit\n"
                 "  --help          print this and exit\n",
                 DEFAULT_PORT);
}

static int usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int usage_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "ctrdzvd: ");
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "; see ctrdzvd --help\n");
    va_end(ap);
    return EXIT_USAGE;
}

static int parse_port(const char *text, uint16_t *out)
{
    int port;
    if (ct_parse_int(text, 0, UINT16_MAX, &port) != 0) {
        return usage_error("--port '%s' is not a number from 0 to 65535", text);
    }
    *out = (uint16_t)port;
    return 0;
}

static int parse_ready_fd(const char *text, int *out)
{
    int fd;
    if (ct_parse_int(text, 0, INT_MAX, &fd) != 0) {
        return usage_error("--ready-fd '%s' is not a descriptor number", text);
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
        return usage_error("--ready-fd %s is not open for writing", text);
    }
    *out = fd;
    return 0;
}

/* 0 = go on, -1 = done (help, version), else an exit code. */
static int parse_options(int argc, char **argv, struct config *cfg)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},
        {"port", required_argument, NULL, 'p'},
        {"ready-fd", required_argument, NULL, 'r'},
        {"ready_fd", required_argument, NULL, 'r'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    opterr = 0;
    int rc = 0;
    while (rc == 0) {
        /* getopt stands behind an option it refuses, on an argument it has permuted or not. */
        int at = optind;
        int opt = getopt_long(argc, argv, "+:h", options, NULL);
        if (opt == -1) {
            break;
        }
        switch (opt) {
        case 'l':
            cfg->host = optarg;
            rc = optarg[0] != '\0' ? 0 : usage_error("--listen needs an address");
            break;
        case 'p':
            rc = parse_port(optarg, &cfg->port);
            break;
        case 'r':
            rc = parse_ready_fd(optarg, &cfg->ready_fd);
            break;
        case 'v':
            (void)printf("ctrdzvd %s\n", CT_VERSION);
            return -1;
        case 'h':
            print_help();
            return -1;
        case ':':
            return usage_error("option '%s' needs a value", argv[at]);
        default:
            return usage_error("unknown or malformed option '%s'", argv[at]);
        }
    }
    if (rc == 0 && optind < argc) {
        return usage_error("argument '%s' is not expected", argv[optind]);
    }
    return rc;
}

/* ---- running -------------------------------------------------------------------------------- */

static void emit(void *data, enum ct_log_level level, const char *line)
{
    (void)data;
    (void)fprintf(stderr, "ctrdzvd: %s: %s\n", ct_log_level_name(level), line);
}

/* Each client is one descriptor, and the soft limit is often 1024. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The loop ends when the last handle is closed. */
static void stop(struct daemon *daemon)
{
    ct_server_close(daemon->server, NULL, NULL);
    uv_close((uv_handle_t *)&daemon->sigterm, NULL);
    uv_close((uv_handle_t *)&daemon->sigint, NULL);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)signum;
    stop(handle->data);
}

static int watch_signals(struct daemon *daemon)
{
    /* A client that is gone shows as a failed write. */
    (void)signal(SIGPIPE, SIG_IGN);
    daemon->sigterm.data = daemon;
    daemon->sigint.data = daemon;
    return uv_signal_init(&daemon->loop, &daemon->sigterm) != 0 ||
           uv_signal_init(&daemon->loop, &daemon->sigint) != 0 ||
           uv_signal_start(&daemon->sigterm, on_signal, SIGTERM) != 0 ||
           uv_signal_start(&daemon->sigint, on_signal, SIGINT) != 0;
}

static int announce(const struct config *cfg, const struct ct_server *server)
{
    unsigned port = ct_server_port(server);
    bool bare_v6 = strchr(cfg->host, ':') != NULL;
    (void)fprintf(stderr, "ctrdzvd: listening on %s%s%s:%u\n", bare_v6 ? "[" : "", cfg->host,
                  bare_v6 ? "]" : "", port);
    if (cfg->ready_fd >= 0) {
        int n = dprintf(cfg->ready_fd, "%u\n", port);
        if (n < 0) {
            (void)fprintf(stderr, "ctrdzvd: cannot write to --ready-fd %d: %s\n", cfg->ready_fd,
                          strerror(errno));
            return EXIT_FAILURE;
        }
        (void)close(cfg->ready_fd);
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct config cfg = {.host = "127.0.0.1", .port = DEFAULT_PORT, .ready_fd = -1};
    int rc = parse_options(argc, argv, &cfg);
    if (rc != 0) {
        return rc < 0 ? EXIT_SUCCESS : rc;
    }
    raise_descriptor_limit();
    struct daemon daemon = {0};
    if (uv_loop_init(&daemon.loop) != 0 || watch_signals(&daemon) != 0) {
        (void)fprintf(stderr, "ctrdzvd: cannot start the event loop\n");
        return EXIT_FAILURE;
    }
    const struct ct_log log = {emit, NULL, CT_LOG_WARNING};
    const struct ct_server_options options = {.host = cfg.host, .port = cfg.port, .log = &log};
    struct ct_err err = {0};
    if (ct_server_open(&daemon.loop, &options, &daemon.server, &err) != 0) {
        (void)fprintf(stderr, "ctrdzvd: %s\n", err.text);
        rc = EXIT_FAILURE;
    } else {
        rc = announce(&cfg, daemon.server);
    }
    if (rc != EXIT_SUCCESS) {
        stop(&daemon);
    }
    (void)uv_run(&daemon.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&daemon.loop);
    return rc;
}
