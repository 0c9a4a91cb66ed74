/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun-stat: asks a store for its status and shows it. Exit codes: 0 healthy, 1 degraded,
 * 2 unreachable, 3 usage.
 */
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"
#include "rendezvous/ctrun-stat/http_get.h"
#include "rendezvous/ctrun-stat/stat_options.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_HEALTHY, EXIT_DEGRADED, EXIT_UNREACHABLE, EXIT_USAGE };

#define WATCH_S 1
/* Cursor to the top left, then clear the rest: this flickers less than clearing all first. */
#define CLEAR "\033[H\033[J"

/* Gives the document and whether it says healthy. `bytes` and *reply get the whole reply. */
static int ask(const struct ct_stat_options *options, struct ct_buf *bytes,
               struct ct_http_reply *reply, cJSON **out, bool *healthy, struct ct_err *err)
{
    int64_t deadline_ns = ct_deadline_in(NULL, (int64_t)options->timeout_s * 1000);
    int rc = ct_http_get(&options->where, "/status", deadline_ns, bytes, reply, err);
    if (rc != 0) {
        return rc;
    }
    if (reply->code == 403) {
        return ct_err_set(err, CT_EPERM, "this machine is not admitted");
    }
    const char *text = (const char *)ct_buf_bytes(bytes) + reply->body;
    ct_json_use_our_memory();
    cJSON *status = cJSON_ParseWithLength(text, reply->len);
    if (reply->code != 200) {
        char why[256];
        (void)snprintf(why, sizeof(why), "%s", ct_json_text(status, "error", ""));
        ct_text_clean(why);
        cJSON_Delete(status);
        return ct_err_set(err, CT_EPROTO, "answered with HTTP code %d%s%s", reply->code,
                          why[0] != '\0' ? ": " : "", why);
    }
    if (ct_stat_verdict(status, healthy) != 0) {
        cJSON_Delete(status);
        return ct_err_set(err, CT_EFORMAT, "answered with something that is no status");
    }
    *out = status;
    return 0;
}

static int print(const struct ct_stat_options *options, const char *where, const cJSON *status,
                 struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = 0;
    if (options->action == CT_STAT_JSON) {
        rc = ct_json_print(status, &text);
    } else if (options->action == CT_STAT_HEALTH) {
        rc = ct_stat_health(status, &text);
    } else {
        bool screen = options->watch && isatty(STDOUT_FILENO) == 1;
        ct_buf_addf(&text, "%s", screen ? CLEAR : "");
        rc = ct_stat_table(status, where, &text);
        ct_buf_addf(&text, "%s", options->watch && !screen ? "\n" : "");
    }
    if (rc != 0 || ct_buf_status(&text) != 0) {
        rc = ct_err_set(err, rc != 0 ? rc : CT_ENOMEM, "out of memory");
    } else if (ct_fd_write_all(STDOUT_FILENO, ct_buf_bytes(&text), text.len) != 0) {
        rc = ct_err_set(err, CT_EIO, "cannot write to standard output");
    }
    ct_buf_fini(&text);
    return rc;
}

/* What to add to the message when nobody listens. `seen`: the store has answered before. */
static const char *hint(const struct ct_err *err, bool seen)
{
    if (seen) {
        return err->code == CT_ECLOSED ? "; it answered a moment ago: the job has probably ended"
                                       : "";
    }
    return err->sys == ECONNREFUSED ? "; ctrun chooses a free port, unless --master-port names one"
                                    : "";
}

static int show(const struct ct_stat_options *options, bool seen)
{
    char where[CT_ADDR_JOIN_MAX];
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply;
    struct ct_err err = {0};
    cJSON *status = NULL;
    bool healthy = false;
    ct_addr_join(options->where.host, options->where.port, where, sizeof(where));
    int rc = ask(options, &bytes, &reply, &status, &healthy, &err);
    if (rc == 0) {
        rc = print(options, where, status, &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "ctrun-stat: %s: %s%s\n", where, err.text, hint(&err, seen));
    }
    cJSON_Delete(status);
    ct_buf_fini(&bytes);
    if (rc != 0) {
        return EXIT_UNREACHABLE;
    }
    return healthy ? EXIT_HEALTHY : EXIT_DEGRADED;
}

int main(int argc, char **argv)
{
    struct ct_stat_options options;
    struct ct_err err = {0};
    if (ct_stat_options_parse(argc, argv, getenv("MASTER_ADDR"), getenv("MASTER_PORT"), &options,
                              &err) != 0) {
        (void)fprintf(stderr, "ctrun-stat: %s; see ctrun-stat --help\n", err.text);
        return EXIT_USAGE;
    }
    if (options.action == CT_STAT_HELP) {
        return fputs(ct_stat_help, stdout) != EOF && fflush(stdout) == 0 ? EXIT_HEALTHY
                                                                         : EXIT_UNREACHABLE;
    }
    if (options.action == CT_STAT_VERSION) {
        (void)printf("ctrun-stat %s\n", CT_VERSION);
        return EXIT_HEALTHY;
    }
    int rc = show(&options, false);
    while (options.watch && rc != EXIT_UNREACHABLE) {
        const struct timespec pause = {WATCH_S, 0};
        (void)nanosleep(&pause, NULL);
        rc = show(&options, true);
    }
    return rc;
}
