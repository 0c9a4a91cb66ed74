/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the whole text first and writes it at once, so that nothing is written when memory is out.
 */
#include "rendezvous/ctrun-stat/stat_print.h"

#include "common/buf.h"
#include "common/file.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/ctrun-stat/stat_screen.h"
#include "rendezvous/ctrun-stat/stat_stacks.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/json.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

size_t ct_stat_print_columns(int fd, size_t otherwise)
{
    struct winsize size;
    bool known = isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : otherwise;
}

size_t ct_stat_print_table_columns(int fd, size_t otherwise)
{
    size_t columns = ct_stat_print_columns(fd, otherwise);
    return columns > CT_STAT_COLUMNS ? columns : CT_STAT_COLUMNS;
}

static int write_out(int rc, struct ct_buf *text, struct ct_err *err)
{
    if (rc == CT_ENOMEM || ct_buf_status(text) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    } else if (rc == 0 && ct_fd_write_all(STDOUT_FILENO, ct_buf_bytes(text), text->len) != 0) {
        rc = ct_err_set(err, CT_EIO, "cannot write to standard output");
    }
    ct_buf_fini(text);
    return rc;
}

int ct_stat_print_text(const char *text, struct ct_err *err)
{
    struct ct_buf bytes = CT_BUF_INIT;
    ct_buf_addf(&bytes, "%s", text);
    return write_out(0, &bytes, err);
}

int ct_stat_print_read_key(const struct ct_token *token, struct ct_err *err)
{
    struct ct_token key;
    char line[CT_TOKEN_MAX + 2];
    if (token == NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "--read-key needs the job's token: name its file with --token-file, or "
                          "set " CT_TOKEN_ENV);
    }
    ct_token_read_key(token, &key);
    (void)snprintf(line, sizeof(line), "%.*s\n", (int)key.len, key.text);
    return ct_stat_print_text(line, err);
}

void ct_stat_print_choices(const struct ct_job_entry *entries, int count)
{
    struct ct_buf text = CT_BUF_INIT;
    size_t columns = ct_stat_print_table_columns(STDERR_FILENO, CT_STAT_COLUMNS);
    ct_buf_addf(
        &text,
        "ctrun-stat: %d jobs run here: add the id of one of them, or as much of its beginning "
        "as no other has\n",
        count);
    if (ct_stat_jobs_names(entries, count, columns, &text) == 0) {
        (void)!ct_fd_write_all(STDERR_FILENO, ct_buf_bytes(&text), text.len);
    }
    ct_buf_fini(&text);
}

/* Stacks change little from one answer to the next, so each says when it was asked for. */
static void add_time(const char *where, struct ct_buf *out)
{
    char text[sizeof("2026-12-31 23:59:59")];
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local) != NULL &&
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local) != 0) {
        ct_buf_addf(out, "%s at %s\n", where, text);
    }
}

/* Returns as ct_stat_stacks(), but a watch goes on without stacks, for the next answer may have
 * some. */
static int add_stacks(const struct ct_stat_options *options, const char *where, const cJSON *status,
                      struct ct_buf *out, struct ct_err *err)
{
    if (!options->watch) {
        return ct_stat_stacks(options, status, out, err);
    }
    struct ct_err why = {0};
    add_time(where, out);
    int rc = ct_stat_stacks(options, status, out, &why);
    if (rc == CT_STAT_STACKS_E_NONE) {
        ct_buf_addf(out, "%s\n", why.text);
        rc = 0;
    }
    ct_buf_addf(out, "\n");
    return rc;
}

int ct_stat_print(const struct ct_stat_options *options, const char *where, const cJSON *status,
                  struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = 0;
    if (options->action == CT_STAT_STACKS) {
        rc = add_stacks(options, where, status, &text, err);
    } else if (options->action == CT_STAT_JSON) {
        rc = ct_json_print(status, &text);
    } else if (options->action == CT_STAT_HEALTH) {
        rc = ct_stat_health(status, ct_stat_print_columns(STDOUT_FILENO, SIZE_MAX), &text);
    } else {
        rc = ct_stat_table(status, where, ct_stat_print_table_columns(STDOUT_FILENO, SIZE_MAX),
                           &text);
        ct_buf_addf(&text, "%s", options->watch ? "\n" : "");
    }
    bool is_none = rc == CT_STAT_STACKS_E_NONE;
    rc = write_out(is_none ? 0 : rc, &text, err);
    return is_none && rc == 0 ? CT_ENOENT : rc;
}

int ct_stat_print_end(const struct ct_stat_options *options, const char *where, const cJSON *last,
                      const cJSON *verdict, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = 0;
    if (options->action != CT_STAT_JSON) {
        rc = ct_stat_screen_end(last, verdict, where, &text);
    } else if (verdict != NULL) {
        rc = ct_json_print(verdict, &text);
    }
    return write_out(rc, &text, err);
}
