/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of the file `job` that is not known is skipped, so that an older ctrun can read the file
 * of a newer one.
 */
#include "launcher/detach/detached_job.h"

#include "common/num.h"
#include "common/text.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* So much of a run id stands in the name of the folder. */
#define RUN_ID_SHOWN 64

void ct_detached_job_name(const char *run_id, const unsigned char random[CT_DETACHED_RANDOM],
                          char out[CT_DETACHED_ID_MAX])
{
    size_t len = 0;
    for (; run_id != NULL && run_id[len] != '\0' && len < RUN_ID_SHOWN; len++) {
        bool kept = strchr(NAME_CHARACTERS, run_id[len]) != NULL;
        bool first = len == 0 && (run_id[0] == '.' || run_id[0] == '-');
        out[len] = run_id[len];
        if (!kept || first) {
            out[len] = '_';
        }
    }
    if (len > 0) {
        out[len++] = '-';
    }
    (void)snprintf(out + len, CT_DETACHED_ID_MAX - len, "%02x%02x%02x%02x", random[0], random[1],
                   random[2], random[3]);
}

bool ct_detached_job_is_name(const char *name)
{
    size_t len = strspn(name, NAME_CHARACTERS);
    return len > 0 && len < CT_DETACHED_ID_MAX && name[len] == '\0' && name[0] != '.';
}

/* Appends "key value". The value must stay one line. */
static void add_line(struct ct_buf *out, const char *key, const char *value)
{
    char clean[CT_DETACHED_TEXT_MAX / 4];
    (void)ct_text_fit(value, sizeof(clean), clean, sizeof(clean));
    ct_buf_addf(out, "%s %s\n", key, clean);
}

int ct_detached_job_print(const struct ct_detached_job *job, struct ct_buf *out)
{
    ct_buf_addf(out, "pid %ld\nstart %" PRIu64 "\nbegun %" PRId64 "\n", (long)job->pid, job->start,
                job->begun_s);
    add_line(out, "host", job->host);
    add_line(out, "place", job->place);
    if (job->machine[0] != '\0') {
        add_line(out, "machine", job->machine);
    }
    add_line(out, "run-id", job->run_id);
    add_line(out, "address", job->address);
    add_line(out, "program", job->program);
    if (job->others[0] != '\0') {
        add_line(out, "others", job->others);
        add_line(out, "word", job->word);
    }
    if (job->via[0] != '\0') {
        add_line(out, "via", job->via);
        add_line(out, "agent", job->agent);
        add_line(out, "ctrun", job->ctrun);
    }
    return ct_buf_status(out);
}

static bool take_number(const char *value, int64_t min, int64_t max, int64_t *out)
{
    return ct_parse_i64(value, min, max, out) == 0;
}

/* Returns false if a number makes no sense. */
static bool take_field(const char *key, const char *value, struct ct_detached_job *job)
{
    const struct {
        const char *key;
        char *out;
        size_t size;
    } texts[] = {
        {"host", job->host, sizeof(job->host)},
        {"place", job->place, sizeof(job->place)},
        {"machine", job->machine, sizeof(job->machine)},
        {"run-id", job->run_id, sizeof(job->run_id)},
        {"address", job->address, sizeof(job->address)},
        {"program", job->program, sizeof(job->program)},
        {"others", job->others, sizeof(job->others)},
        {"word", job->word, sizeof(job->word)},
        {"via", job->via, sizeof(job->via)},
        {"agent", job->agent, sizeof(job->agent)},
        {"ctrun", job->ctrun, sizeof(job->ctrun)},
    };
    int64_t number = 0;
    bool valid = true;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(key, texts[i].key) == 0) {
            (void)ct_text_fit(value, texts[i].size, texts[i].out, texts[i].size);
            return true;
        }
    }
    if (strcmp(key, "pid") == 0) {
        valid = take_number(value, 1, INT_MAX, &number);
        job->pid = (pid_t)number;
    } else if (strcmp(key, "start") == 0) {
        valid = take_number(value, 0, INT64_MAX, &number);
        job->start = (uint64_t)number;
    } else if (strcmp(key, "begun") == 0) {
        valid = take_number(value, 0, INT64_MAX, &job->begun_s);
    }
    return valid;
}

bool ct_detached_job_parse(const char *text, struct ct_detached_job *out)
{
    *out = (struct ct_detached_job){0};
    while (*text != '\0') {
        char line[CT_DETACHED_TEXT_MAX];
        size_t len = strcspn(text, "\n");
        if (text[len] == '\0' || len >= sizeof(line)) {
            return false; /* cut short */
        }
        memcpy(line, text, len);
        line[len] = '\0';
        text += len + 1;
        char *value = strchr(line, ' ');
        if (value == NULL) {
            return false;
        }
        *value++ = '\0';
        if (!take_field(line, value, out)) {
            return false;
        }
    }
    /* A ctrun that leaves its job to other machines may be the first process of a container. */
    bool is_job = out->pid > 1 || (out->pid == 1 && out->via[0] != '\0');
    return is_job && out->host[0] != '\0' && out->place[0] != '\0';
}

enum ct_detached_where ct_detached_job_where(const struct ct_detached_job *job,
                                             const struct ct_detached_here *here)
{
    bool named = strcmp(job->host, here->host) == 0;
    bool same = strcmp(job->place, here->place) == 0;
    size_t boot = strcspn(here->place, "/");
    bool booted = boot > 0 && strncmp(job->place, here->place, boot + 1) == 0;
    if (!named) {
        return booted && !same ? CT_DETACHED_CONTAINER : CT_DETACHED_OTHER;
    }
    if (same) {
        return CT_DETACHED_HERE;
    }
    /* Without /proc a process sees nobody, and must not take a job for dead. */
    if (booted || boot == 0 || job->place[0] == '/') {
        return CT_DETACHED_CONTAINER;
    }
    bool other = job->machine[0] != '\0' && here->machine[0] != '\0' &&
                 strcmp(job->machine, here->machine) != 0;
    return other ? CT_DETACHED_NAMESAKE : CT_DETACHED_BEFORE;
}

void ct_detached_job_exit_text(int exit_code, int64_t time_s, char out[CT_DETACHED_EXIT_SIZE + 1])
{
    char text[CT_DETACHED_EXIT_SIZE];
    if (exit_code < 0) {
        (void)snprintf(text, sizeof(text), "running");
    } else {
        (void)snprintf(text, sizeof(text), "%d %" PRId64, exit_code, time_s);
    }
    (void)snprintf(out, CT_DETACHED_EXIT_SIZE + 1, "%-*s\n", CT_DETACHED_EXIT_SIZE - 1, text);
}

bool ct_detached_job_exit_parse(const char *text, int *exit_code, int64_t *time_s)
{
    char code[8], time[24];
    size_t code_len = strcspn(text, " ");
    const char *rest = text + code_len + strspn(text + code_len, " ");
    size_t time_len = strcspn(rest, " \n");
    if (code_len >= sizeof(code) || time_len >= sizeof(time)) {
        return false;
    }
    memcpy(code, text, code_len);
    code[code_len] = '\0';
    memcpy(time, rest, time_len);
    time[time_len] = '\0';
    return ct_parse_int(code, 0, 255, exit_code) == 0 &&
           ct_parse_i64(time, 0, INT64_MAX, time_s) == 0;
}
