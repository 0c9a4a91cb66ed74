/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun-stat: asks a store for its status and shows it. Exit codes: 0 healthy, 1 degraded,
 * 2 unreachable, 3 usage.
 */
#include "common/file.h"
#include "rendezvous/ctrdzvd/daemon_options.h"
#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/ctrun-stat/stat_options.h"
#include "rendezvous/ctrun-stat/stat_print.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/ctrun-stat/stat_watch_uv.h"
#include "rendezvous/wire/json.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { EXIT_HEALTHY, EXIT_DEGRADED, EXIT_UNREACHABLE, EXIT_USAGE };

/* The jobs of this user on this machine. As ct_job_registry_list(). */
static int jobs_here(struct ct_job_entry entries[CT_JOBS_MAX], struct ct_err *err)
{
    char folder[CT_JOB_FOLDER_MAX];
    ct_job_registry_folder(getenv("XDG_RUNTIME_DIR"), geteuid(), folder);
    return ct_job_registry_list(folder, entries, err);
}

/* Says why the store cannot be asked, and what to do if nobody listens there. */
static void complain(const struct ct_endpoint *asked, const char *where, const struct ct_err *err)
{
    static struct ct_job_entry entries[CT_JOBS_MAX];
    char hint[CT_STAT_HINT_MAX] = "";
    if (err->sys == ECONNREFUSED) {
        ct_stat_jobs_hint(asked, entries, jobs_here(entries, NULL), hint);
    }
    (void)fprintf(stderr, "ctrun-stat: %s: %s%s\n", where, err->text, hint);
}

static int show(const struct ct_stat_options *options)
{
    char where[CT_ADDR_JOIN_MAX];
    struct ct_err err = {0};
    cJSON *status = NULL;
    bool healthy = false;
    ct_addr_join(options->where.host, options->where.port, where, sizeof(where));
    int rc = ct_stat_ask(&options->where, options->timeout_s, &status, &err);
    if (rc == 0) {
        rc = ct_stat_print(options, where, status, &err);
    }
    if (rc == 0) {
        rc = ct_stat_verdict(status, &healthy);
    }
    if (rc != 0) {
        complain(&options->where, where, &err);
    }
    cJSON_Delete(status);
    if (rc != 0) {
        return EXIT_UNREACHABLE;
    }
    return healthy ? EXIT_HEALTHY : EXIT_DEGRADED;
}

/* ---- --watch -------------------------------------------------------------------------------- */

/* Where the output is no terminal: one answer below the other. */
struct pages {
    const struct ct_stat_options *options;
    char where[CT_ADDR_JOIN_MAX];
    cJSON *last; /* the last answer; of the last words */
};

static int print_page(void *data, const cJSON *status, struct ct_err *err)
{
    struct pages *pages = data;
    cJSON_Delete(pages->last);
    pages->last = cJSON_Duplicate(status, true);
    return ct_stat_print(pages->options, pages->where, status, err);
}

static int print_end(void *data, const cJSON *verdict, struct ct_err *err)
{
    const struct pages *pages = data;
    return ct_stat_print_end(pages->options, pages->where, pages->last, verdict, err);
}

static int watch(const struct ct_stat_options *options)
{
    struct ct_err err = {0};
    struct ct_stat_watched result = {0};
    struct pages pages = {.options = options};
    bool screen = options->action == CT_STAT_TABLE && isatty(STDOUT_FILENO) == 1;
    const struct ct_stat_watch_options how = {.where = options->where,
                                              .timeout_s = options->timeout_s,
                                              .out_fd = STDOUT_FILENO,
                                              .in_fd = STDIN_FILENO,
                                              .print = screen ? NULL : print_page,
                                              .print_end = screen ? NULL : print_end,
                                              .data = &pages};
    ct_addr_join(options->where.host, options->where.port, pages.where, sizeof(pages.where));
    int rc = ct_stat_watch_run(&how, &result, &err);
    cJSON_Delete(pages.last);
    if (rc != 0) {
        complain(&options->where, pages.where, &err);
        return EXIT_UNREACHABLE;
    }
    if (result.ended && !result.is_known && !screen) {
        (void)fprintf(stderr,
                      "ctrun-stat: %s: it answered a moment ago: the job has probably ended\n",
                      pages.where);
    }
    if (result.signo != 0) { /* the terminal is as before; end as the signal would have */
        (void)signal(result.signo, SIG_DFL);
        (void)raise(result.signo);
    }
    if (result.ended) {
        return !result.is_known   ? EXIT_UNREACHABLE
               : result.succeeded ? EXIT_HEALTHY
                                  : EXIT_DEGRADED;
    }
    return result.healthy ? EXIT_HEALTHY : EXIT_DEGRADED;
}

/* ---- jobs of this machine ------------------------------------------------------------------- */

static int list(const struct ct_stat_options *options, const struct ct_job_entry *entries,
                int count)
{
    struct ct_stat_job jobs[CT_JOBS_MAX];
    struct ct_buf text = CT_BUF_INIT;
    int rc = EXIT_HEALTHY;
    for (int i = 0; i < count; i++) {
        struct ct_endpoint where;
        cJSON *status = NULL;
        bool healthy = false;
        if (ct_endpoint_parse(entries[i].address, CT_DEFAULT_STORE_PORT, &where, NULL) == 0 &&
            ct_stat_ask(&where, options->timeout_s, &status, NULL) == 0) {
            (void)!ct_stat_verdict(status, &healthy); /* was checked */
        }
        rc = healthy ? rc : EXIT_DEGRADED;
        jobs[i] = (struct ct_stat_job){&entries[i], status};
    }
    if (ct_stat_jobs_table(jobs, count, &text) != 0 ||
        ct_fd_write_all(STDOUT_FILENO, ct_buf_bytes(&text), text.len) != 0) {
        rc = EXIT_UNREACHABLE;
    }
    for (int i = 0; i < count; i++) {
        cJSON_Delete((cJSON *)jobs[i].status);
    }
    ct_buf_fini(&text);
    return rc;
}

/* Where nothing names a store: takes the only job of this user on this machine, or lists them.
 * Returns -1 if options->where is to be asked. */
static int find_job(struct ct_stat_options *options)
{
    static struct ct_job_entry entries[CT_JOBS_MAX];
    struct ct_err err = {0};
    int count = jobs_here(entries, &err);
    if (count < 0) {
        (void)fprintf(stderr, "ctrun-stat: %s\n", err.text);
        return -1;
    }
    if (count == 1) {
        struct ct_endpoint where;
        if (ct_endpoint_parse(entries[0].address, CT_DEFAULT_STORE_PORT, &where, NULL) == 0) {
            options->where = where;
        }
    }
    if (count < 2) {
        return -1;
    }
    if (options->watch || options->action != CT_STAT_TABLE) {
        (void)fprintf(stderr,
                      "ctrun-stat: %d jobs run here: name the address of one of them, as "
                      "listed by ctrun-stat alone\n",
                      count);
        return EXIT_USAGE;
    }
    return list(options, entries, count);
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
    ct_json_use_our_memory();
    int rc = options.where_is_default ? find_job(&options) : -1;
    if (rc >= 0) {
        return rc;
    }
    return options.watch ? watch(&options) : show(&options);
}
