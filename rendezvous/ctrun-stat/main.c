/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun-stat: asks a store for its status and shows it. Exit codes: 0 healthy, 1 degraded,
 * 2 unreachable, 3 usage, or one of several jobs must be named.
 */
#include "common/file.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_here.h"
#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/ctrun-stat/stat_options.h"
#include "rendezvous/ctrun-stat/stat_print.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/ctrun-stat/stat_watch_uv.h"
#include "rendezvous/wire/json.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_HEALTHY, EXIT_DEGRADED, EXIT_UNREACHABLE, EXIT_USAGE };

static struct ct_stat_vars read_vars(void)
{
    return (struct ct_stat_vars){getenv("XDG_RUNTIME_DIR"), getenv("MASTER_ADDR"),
                                 getenv("MASTER_PORT")};
}

/* Says why the store cannot be asked, and what to do about that; or what is wrong after it has
 * answered. `more` follows. */
static void complain(const struct ct_stat_options *options, const char *where, bool has_answered,
                     const struct ct_err *err, const char *more)
{
    static struct ct_stat_here here;
    char text[CT_STAT_COMPLAINT_MAX];
    const struct ct_stat_vars vars = read_vars();
    (void)snprintf(text, sizeof(text), "%s: %s", where, err->text);
    if (!has_answered) {
        ct_stat_here_complaint(&here, &vars, options, err, text);
    }
    (void)fprintf(stderr, "ctrun-stat: %s%s\n", text, more);
}

static int show(const struct ct_stat_options *options)
{
    char where[CT_ADDR_JOIN_MAX];
    struct ct_err err = {0};
    cJSON *status = NULL;
    bool healthy = false;
    ct_addr_join(options->where.host, options->where.port, where, sizeof(where));
    int rc = ct_stat_ask(&options->where, options->token, options->timeout_s, &status, &err);
    bool has_answered = rc == 0;
    if (rc == 0) {
        rc = ct_stat_print(options, where, status, &err);
    }
    if (rc == 0) {
        rc = ct_stat_verdict(status, &healthy);
    }
    if (rc != 0) {
        complain(options, where, has_answered, &err, "");
    }
    cJSON_Delete(status);
    return rc != 0 ? EXIT_UNREACHABLE : healthy ? EXIT_HEALTHY : EXIT_DEGRADED;
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

/* Goes to standard error: a person or a log sees it, and a program that reads the answers does not.
 */
static int print_silence(void *data, const struct ct_err *why, struct ct_err *err)
{
    const struct pages *pages = data;
    (void)err;
    complain(pages->options, pages->where, false, why, "; asking again");
    return 0;
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
                                              .token = options->token,
                                              .timeout_s = options->timeout_s,
                                              .out_fd = STDOUT_FILENO,
                                              .in_fd = STDIN_FILENO,
                                              .print = screen ? NULL : print_page,
                                              .print_silence = print_silence,
                                              .print_end = screen ? NULL : print_end,
                                              .data = &pages};
    ct_addr_join(options->where.host, options->where.port, pages.where, sizeof(pages.where));
    int rc = ct_stat_watch_run(&how, &result, &err);
    cJSON_Delete(pages.last);
    if (rc != 0) {
        complain(options, pages.where, result.seen, &err, "");
        return EXIT_UNREACHABLE;
    }
    if (result.ended && !result.is_known && !screen) {
        (void)fprintf(stderr, "ctrun-stat: %s: %s: the job has probably ended\n", pages.where,
                      result.replaced ? "another job's store answers there now"
                                      : "it answered a moment ago");
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

/* ---- which store ---------------------------------------------------------------------------- */

static int list(const struct ct_stat_options *options, const struct ct_stat_here *here)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_stat_here_sum sum = {.any = false};
    size_t columns = ct_stat_print_table_columns(STDOUT_FILENO, CT_STAT_COLUMNS);
    bool good = ct_stat_here_list(here, options->timeout_s, columns, &text, &sum) == 0 &&
                ct_fd_write_all(STDOUT_FILENO, ct_buf_bytes(&text), text.len) == 0;
    ct_buf_fini(&text);
    return !good || !sum.any ? EXIT_UNREACHABLE : sum.healthy ? EXIT_HEALTHY : EXIT_DEGRADED;
}

static int fail(const char *why)
{
    (void)fprintf(stderr, "ctrun-stat: %s\n", why);
    return EXIT_UNREACHABLE;
}

static int refuse(const char *why)
{
    (void)fprintf(stderr, "ctrun-stat: %s; see ctrun-stat --help\n", why);
    return EXIT_USAGE;
}

/* Sets options->where and returns -1, or says why not or lists the jobs, and returns the exit code.
 */
static int choose(struct ct_stat_options *options)
{
    static struct ct_stat_here here;
    const struct ct_stat_vars vars = read_vars();
    struct ct_err err = {0};
    switch (ct_stat_here_choose(&here, &vars, options, &err)) {
    case CT_STAT_CHOICE_LIST:
        return list(options, &here);
    case CT_STAT_CHOICE_ONE_OF:
        ct_stat_print_choices(here.entries, here.count);
        return EXIT_USAGE;
    case CT_STAT_CHOICE_WRONG:
        return refuse(err.text);
    case CT_STAT_CHOICE_UNREACHABLE:
        return fail(err.text);
    case CT_STAT_CHOICE_STORE:
        break;
    }
    return -1;
}

static int run(struct ct_stat_options *options)
{
    struct ct_err err = {0};
    if (options->action == CT_STAT_READ_KEY) {
        int rc = ct_stat_print_read_key(options->token, &err);
        return rc == 0 ? EXIT_HEALTHY : rc == CT_EINVAL ? refuse(err.text) : fail(err.text);
    }
    int rc = choose(options);
    return rc >= 0 ? rc : options->watch ? watch(options) : show(options);
}

int main(int argc, char **argv)
{
    struct ct_stat_options options;
    struct ct_token token = {.len = 0};
    struct ct_err err = {0};
    if (ct_stat_options_parse(argc, argv, &options, &err) != 0) {
        return refuse(err.text);
    }
    if (options.action == CT_STAT_HELP || options.action == CT_STAT_VERSION) {
        bool help = options.action == CT_STAT_HELP;
        int written = ct_stat_print_text(help ? ct_stat_help : "ctrun-stat " CT_VERSION "\n", &err);
        return written == 0 ? EXIT_HEALTHY : fail(err.text);
    }
    ct_json_use_our_memory();
    if (ct_token_find(options.token_file, getenv(CT_TOKEN_ENV), &token, &err) != 0) {
        return fail(err.text);
    }
    options.token = token.len > 0 ? &token : NULL;
    int rc = run(&options);
    ct_token_wipe(&token);
    return rc;
}
