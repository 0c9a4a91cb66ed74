/* SPDX-License-Identifier: Apache-2.0
 *
 * An id of a job of this user here wins over a host of that name. Where nothing names a store, the
 * only job is taken. A service or a job of cron has no XDG_RUNTIME_DIR, and its user's shell has,
 * so both folders that this gives are read.
 *
 * Reads the folder of jobs and asks their stores, all at once, which blocks. A store that does not
 * answer in time leaves its job in the table without a state.
 */
#include "rendezvous/ctrun-stat/stat_here.h"

#include "rendezvous/ctrdzvd/daemon_options.h"
#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool ct_stat_here_other_folder(const char *runtime_dir, uid_t uid, char out[CT_JOB_FOLDER_MAX])
{
    char usual[32];
    (void)snprintf(usual, sizeof(usual), "/run/user/%lu", (unsigned long)uid);
    bool has_dir = runtime_dir != NULL && runtime_dir[0] == '/';
    ct_job_registry_folder(has_dir ? NULL : usual, uid, out);
    return !has_dir || strcmp(runtime_dir, usual) == 0;
}

/* Adds the jobs of the other folder. It need not be there, nor belong to the user. */
static void read_others(struct ct_stat_here *here, const char *runtime_dir)
{
    char folder[CT_JOB_FOLDER_MAX];
    if (!ct_stat_here_other_folder(runtime_dir, geteuid(), folder)) {
        return;
    }
    int count = ct_job_registry_list(folder, here->others, NULL);
    for (int i = 0; i < count && here->count < CT_JOBS_MAX; i++) {
        here->entries[here->count++] = here->others[i];
    }
}

/* Errors as of ct_job_registry_list() if that is why there are no jobs. */
static int read_jobs(struct ct_stat_here *here, const char *runtime_dir, struct ct_err *err)
{
    char folder[CT_JOB_FOLDER_MAX];
    ct_job_registry_folder(runtime_dir, geteuid(), folder);
    int rc = ct_job_registry_list(folder, here->entries, err);
    here->count = rc > 0 ? rc : 0;
    read_others(here, runtime_dir);
    return rc < 0 && here->count == 0 ? rc : 0;
}

static int where_of(const struct ct_job_entry *entry, struct ct_endpoint *out, struct ct_err *err)
{
    return ct_endpoint_parse(entry->address, CT_DEFAULT_STORE_PORT, out, err);
}

/* ---- the list ------------------------------------------------------------------------------- */

static void judge(const struct ct_job_entry *entry, const struct cJSON *answer,
                  struct ct_stat_here_sum *sum)
{
    bool is_healthy = false;
    if (answer == NULL && entry->elsewhere) {
        return; /* nothing is known of it */
    }
    if (answer != NULL) {
        (void)!ct_stat_verdict(answer, &is_healthy); /* was checked */
    }
    sum->healthy = sum->healthy && is_healthy;
    sum->any = true;
}

int ct_stat_here_list(const struct ct_stat_here *here, int timeout_s, size_t columns,
                      struct ct_buf *out, struct ct_stat_here_sum *sum)
{
    struct ct_endpoint stores[CT_JOBS_MAX];
    const struct ct_endpoint *asked[CT_JOBS_MAX];
    struct cJSON *answers[CT_JOBS_MAX];
    struct ct_stat_job jobs[CT_JOBS_MAX] = {{NULL, NULL}};
    for (int i = 0; i < here->count; i++) {
        bool can_ask = ct_stat_jobs_in_reach(&here->entries[i]) &&
                       where_of(&here->entries[i], &stores[i], NULL) == 0;
        asked[i] = can_ask ? &stores[i] : NULL;
    }
    int rc = ct_stat_ask_all(asked, here->count, timeout_s, answers);
    if (rc != 0) {
        return rc;
    }
    *sum = (struct ct_stat_here_sum){.healthy = true};
    for (int i = 0; i < here->count; i++) {
        judge(&here->entries[i], answers[i], sum);
        jobs[i] = (struct ct_stat_job){&here->entries[i], answers[i]};
    }
    rc = ct_stat_jobs_table(jobs, here->count, columns, out);
    for (int i = 0; i < here->count; i++) {
        cJSON_Delete(answers[i]);
    }
    return rc;
}

/* ---- which store ---------------------------------------------------------------------------- */

/* Takes the store of the entry. */
static enum ct_stat_choice take_entry(const struct ct_stat_here *here, int index,
                                      struct ct_stat_options *options, struct ct_err *err)
{
    const struct ct_job_entry *entry = &here->entries[index];
    char hint[CT_STAT_HINT_MAX];
    if (where_of(entry, &options->where, err) != 0) {
        return CT_STAT_CHOICE_WRONG;
    }
    if (!ct_stat_jobs_in_reach(entry)) {
        ct_stat_jobs_hint(&options->where, false, entry, 1, hint);
        (void)ct_err_set(err, CT_EIO, "%s: the job '%s' is%s", entry->address, entry->name,
                         hint + 1);
        return CT_STAT_CHOICE_UNREACHABLE;
    }
    return CT_STAT_CHOICE_STORE;
}

/* Nobody calls a job 10.0.0.1:29500 or http://node7/. */
static bool is_surely_address(const char *word)
{
    return word[strspn(word, "0123456789.:[]")] == '\0' || strstr(word, "://") != NULL;
}

/* Writes what can be said of a word that means no job and no store, but may have been meant as the
 * id of a job; "" = nothing. */
static void id_hint(const struct ct_stat_here *here, const char *word, char out[CT_STAT_HINT_MAX])
{
    out[0] = '\0';
    if (word == NULL || is_surely_address(word)) {
        return;
    }
    const char *what = "; no job of yours here has an id that begins so";
    if (ct_stat_jobs_count(word, here->entries, here->count) > 0) {
        what =
            "; a job of yours here has an id that begins so: write it whole, or end it with '...'";
    } else if (strpbrk(word, ":/") != NULL) {
        what = "; no job of yours here has this id, which must be whole if it has a colon or slash";
    }
    (void)snprintf(out, CT_STAT_HINT_MAX, "%s", what);
}

enum ct_stat_choice ct_stat_here_choose(struct ct_stat_here *here, const struct ct_stat_vars *vars,
                                        struct ct_stat_options *options, struct ct_err *err)
{
    struct ct_err unread = {0};
    bool is_default = false;
    int rc = read_jobs(here, vars->runtime_dir, &unread);
    if (options->argument != NULL) {
        int found = ct_stat_jobs_find(options->argument, here->entries, here->count, err);
        if (found == CT_EINVAL) {
            return CT_STAT_CHOICE_WRONG;
        }
        if (found >= 0) {
            return take_entry(here, found, options, err);
        }
    }
    int where_rc = ct_stat_options_where(options->argument, vars->master_addr, vars->master_port,
                                         &options->where, &is_default, err);
    if (where_rc != 0) {
        char hint[CT_STAT_HINT_MAX], why[CT_ERR_TEXT_MAX];
        id_hint(here, options->argument, hint);
        (void)snprintf(why, sizeof(why), "%s", err->text);
        (void)ct_err_set(err, where_rc, "%s%s", why, hint);
        return CT_STAT_CHOICE_WRONG;
    }
    if (!is_default) {
        return CT_STAT_CHOICE_STORE;
    }
    if (rc != 0) { /* whoever has made that folder may have a store at the default port, too */
        (void)ct_err_set(err, rc, "%s; name the job's store as HOST:PORT", unread.text);
        return CT_STAT_CHOICE_UNREACHABLE;
    }
    options->is_default = here->count == 0;
    if (here->count < 2) {
        return here->count == 1 ? take_entry(here, 0, options, err) : CT_STAT_CHOICE_STORE;
    }
    return options->watch || options->action != CT_STAT_TABLE ? CT_STAT_CHOICE_ONE_OF
                                                              : CT_STAT_CHOICE_LIST;
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Says which variables have named the store; "" = none. */
static const char *source_of(const struct ct_stat_vars *vars, const struct ct_stat_options *options)
{
    bool has_addr = vars->master_addr != NULL && vars->master_addr[0] != '\0';
    bool has_port = vars->master_port != NULL && vars->master_port[0] != '\0';
    if (options->argument != NULL) {
        return "";
    }
    return has_addr && has_port ? " (from MASTER_ADDR and MASTER_PORT)"
           : has_addr           ? " (from MASTER_ADDR)"
           : has_port           ? " (from MASTER_PORT)"
                                : "";
}

/* Writes what can be done about the failure; "" = that is not known. */
static void make_hint(const struct ct_stat_here *here, const struct ct_stat_options *options,
                      const struct ct_err *failure, char out[CT_STAT_HINT_MAX])
{
    const char *word = options->argument;
    bool refused = failure->sys == ECONNREFUSED;
    bool begins_an_id = word != NULL && !is_surely_address(word) &&
                        ct_stat_jobs_count(word, here->entries, here->count) > 0 &&
                        ct_stat_jobs_find(word, here->entries, here->count, NULL) == CT_ENOENT;
    out[0] = '\0';
    if (begins_an_id || failure->code == CT_ENOENT) {
        id_hint(here, word, out);
    } else if (refused || failure->code == CT_ETIMEDOUT) {
        ct_stat_jobs_hint(&options->where, refused, here->entries, here->count, out);
        if (refused && word != NULL && word[strspn(word, "0123456789")] == '\0') {
            char more[CT_STAT_HINT_MAX];
            (void)snprintf(more, sizeof(more), "%s", out);
            (void)snprintf(out, CT_STAT_HINT_MAX,
                           "; no job of yours here has the process id %.10s%.*s", word,
                           CT_STAT_HINT_MAX - 64, more);
        }
    }
}

void ct_stat_here_complaint(struct ct_stat_here *here, const struct ct_stat_vars *vars,
                            const struct ct_stat_options *options, const struct ct_err *failure,
                            char out[CT_STAT_COMPLAINT_MAX])
{
    char where[CT_ADDR_JOIN_MAX], hint[CT_STAT_HINT_MAX];
    ct_addr_join(options->where.host, options->where.port, where, sizeof(where));
    (void)!read_jobs(here, vars->runtime_dir, NULL); /* or without a hint */
    if (options->is_default && here->count == 0) {
        (void)snprintf(out, CT_STAT_COMPLAINT_MAX,
                       "no job of yours has its store on this machine, and %s gives no status "
                       "(%s): name the store of another job as HOST:PORT",
                       where, failure->text);
        return;
    }
    make_hint(here, options, failure, hint);
    (void)snprintf(out, CT_STAT_COMPLAINT_MAX, "%s%s: %s%s", where, source_of(vars, options),
                   failure->text, hint);
}
