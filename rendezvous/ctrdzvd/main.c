/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrdzvd: the store as a program of its own. This file has the options, the loop and two signals;
 * everything else is in the library. Exit codes: 0 after SIGTERM or SIGINT, 1 failure, 2 usage.
 */
#include "common/addr.h"
#include "common/open_files.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/ctrdzvd/daemon_options.h"
#include "rendezvous/ctrdzvd/daemon_station.h"
#include "rendezvous/server/server_uv.h"
#include "rendezvous/wire/notify.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2

/* The longest time from SIGTERM to the end, for clients that leave a request unfinished or an
 * answer unread. systemd kills after 90 s. */
#define DRAIN_MS 5000

struct daemon {
    uv_loop_t loop;
    uv_signal_t sigterm, sigint;
    struct ct_server *server;
    struct ct_daemon_station station;
    bool stopping;
};

static void emit(void *data, enum ct_log_level level, const char *line)
{
    (void)data;
    (void)fprintf(stderr, "ctrdzvd: %s: %s\n", ct_log_level_name(level), line);
}

/* Enough for the loop, the listeners, a journal and a few clients, each of which needs one. */
#define OPEN_FILES_MIN 32

/* Makes glibc give the memory of large values back to the kernel. By default glibc raises its
 * threshold for mmap(2) to the largest block that was freed. Later blocks then come from the heap
 * and stay there, so that a store that was large once would seem to be large for ever. */
static void give_memory_back(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 8 << 20);
#endif
}

static void tell_manager(const char *state)
{
    struct ct_err err = {0};
    if (ct_notify(getenv("NOTIFY_SOCKET"), state, &err) != 0) {
        (void)fprintf(stderr, "ctrdzvd: %s\n", err.text);
    }
}

/* The loop ends when the last handle is closed. */
static void on_server_closed(void *data)
{
    struct daemon *daemon = data;
    uv_close((uv_handle_t *)&daemon->sigterm, NULL);
    uv_close((uv_handle_t *)&daemon->sigint, NULL);
}

/* The first signal lets clients finish; the second one ends at once. */
static void on_signal(uv_signal_t *handle, int signum)
{
    struct daemon *daemon = handle->data;
    (void)signum;
    if (daemon->stopping) {
        ct_server_close(daemon->server, on_server_closed, daemon);
        return;
    }
    daemon->stopping = true;
    tell_manager("STOPPING=1");
    ct_server_drain(daemon->server, DRAIN_MS, on_server_closed, daemon);
}

static int watch_signals(struct daemon *daemon)
{
    /* A write to a client that is gone fails, which is enough. */
    (void)signal(SIGPIPE, SIG_IGN);
    /* A write to a journal that may not grow fails, which is enough. */
    (void)signal(SIGXFSZ, SIG_IGN);
    daemon->sigterm.data = daemon;
    daemon->sigint.data = daemon;
    int rc = uv_signal_init(&daemon->loop, &daemon->sigterm);
    if (rc != 0) {
        return rc;
    }
    rc = uv_signal_init(&daemon->loop, &daemon->sigint);
    if (rc != 0) {
        return rc;
    }
    rc = uv_signal_start(&daemon->sigterm, on_signal, SIGTERM);
    if (rc != 0) {
        return rc;
    }
    return uv_signal_start(&daemon->sigint, on_signal, SIGINT);
}

static int announce(const struct ct_daemon_options *options, const struct ct_server *server)
{
    uint16_t port = ct_server_port(server);
    for (size_t i = 0; i < options->num_hosts; i++) {
        char where[CT_ADDR_JOIN_MAX];
        ct_addr_join(options->hosts[i], port, where, sizeof(where));
        (void)fprintf(stderr, "ctrdzvd: listening on %s\n", where);
    }
    tell_manager("READY=1");
    if (options->ready_fd >= 0) {
        int n = dprintf(options->ready_fd, "%u\n", (unsigned)port);
        if (n < 0) {
            (void)fprintf(stderr, "ctrdzvd: cannot write to --ready-fd %d: %s\n", options->ready_fd,
                          strerror(errno));
            return EXIT_FAILURE;
        }
        (void)close(options->ready_fd);
    }
    return EXIT_SUCCESS;
}

static int serve(const struct ct_daemon_options *options, const struct ct_token *token)
{
    struct daemon daemon = {0};
    int uv = uv_loop_init(&daemon.loop);
    if (uv == 0) {
        uv = watch_signals(&daemon);
    }
    if (uv != 0) {
        (void)fprintf(stderr, "ctrdzvd: cannot start the event loop: %s\n", uv_strerror(uv));
        return EXIT_FAILURE;
    }
    const struct ct_log log = {emit, NULL, CT_LOG_WARNING};
    bool guarded = token->len > 0;
    ct_daemon_station_init(&daemon.station, &log);
    const struct ct_server_agents agents = {.token = guarded ? token : NULL,
                                            .station = guarded ? &daemon.station.station : NULL};
    const struct ct_server_options where = {
        .hosts = options->hosts,
        .num_hosts = options->num_hosts,
        .port = options->port,
        .page_name = options->num_hosts > 0 ? options->hosts[0] : NULL,
        .log = &log,
        .access = &options->access,
        .agents = &agents,
        .http_keys = options->http_keys,
        .journal = options->journal,
        .journal_sync = options->journal_sync,
        .max_memory = options->max_memory,
        .max_connections = options->max_connections,
    };
    if (options->access.open) {
        ct_log(&log, CT_LOG_WARNING, "--open: every client that reaches the port is admitted");
    }
    struct ct_err err = {0};
    int rc = EXIT_FAILURE;
    if (ct_server_open(&daemon.loop, &where, &daemon.server, &err) != 0 ||
        (guarded && ct_daemon_station_host(&daemon.station, daemon.server, &err) != 0)) {
        (void)fprintf(stderr, "ctrdzvd: %s\n", err.text);
    } else {
        rc = announce(options, daemon.server);
    }
    if (daemon.server == NULL) {
        on_server_closed(&daemon);
    } else if (rc != EXIT_SUCCESS) {
        ct_server_close(daemon.server, on_server_closed, &daemon);
    }
    (void)uv_run(&daemon.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&daemon.loop);
    return rc;
}

int main(int argc, char **argv)
{
    struct ct_daemon_options options;
    struct ct_err err = {0};
    (void)argc;
    if (ct_daemon_options_parse(argv, &options, &err) != 0) {
        (void)fprintf(stderr, "ctrdzvd: %s; see ctrdzvd --help\n", err.text);
        return EXIT_USAGE;
    }
    switch (options.action) {
    case CT_DAEMON_HELP:
        return fputs(ct_daemon_help, stdout) != EOF && fflush(stdout) == 0 ? EXIT_SUCCESS
                                                                           : EXIT_FAILURE;
    case CT_DAEMON_VERSION:
        (void)printf("ctrdzvd %s\n", CT_VERSION);
        return EXIT_SUCCESS;
    case CT_DAEMON_SERVE:
        break;
    }
    give_memory_back();
    struct ct_token token;
    if (ct_open_files_raise(OPEN_FILES_MIN, NULL, &err) != 0 ||
        ct_token_find(options.token_file, getenv(CT_TOKEN_ENV), &token, &err) != 0) {
        (void)fprintf(stderr, "ctrdzvd: %s\n", err.text);
        return EXIT_FAILURE;
    }
    int rc = serve(&options, &token);
    ct_token_wipe(&token);
    return rc;
}
