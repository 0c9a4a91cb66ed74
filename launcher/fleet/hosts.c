/* SPDX-License-Identifier: Apache-2.0
 *
 * Both sources call add(), which adds up the workers of a host that is named twice. Reading ends at
 * the first bad entry; the hosts read before it stay in the list and are freed with it.
 */
#include "launcher/fleet/hosts.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/num.h"
#include "launcher/cli/options.h"

#include <limits.h>
#include <string.h>

/* The size of a hostfile: CT_HOSTS_MAX of the longest names, with room for comments. */
#define FILE_MAX ((size_t)1 << 20)

/* What separates words. */
#define BLANKS " \t\r"

int ct_hosts_workers(const struct ct_hosts *hosts)
{
    int64_t workers = 0;
    for (int i = 0; i < hosts->count; i++) {
        if (hosts->list[i].workers == 0) {
            return INT_MAX;
        }
        workers += hosts->list[i].workers;
    }
    return workers < INT_MAX ? (int)workers : INT_MAX;
}

void ct_hosts_fini(struct ct_hosts *hosts)
{
    if (hosts != NULL) {
        ct_free(hosts->list);
        *hosts = (struct ct_hosts){0};
    }
}

static struct ct_host *find(const struct ct_hosts *hosts, const char *name)
{
    for (int i = 0; i < hosts->count; i++) {
        if (strcmp(hosts->list[i].name, name) == 0) {
            return &hosts->list[i];
        }
    }
    return NULL;
}

static int add(struct ct_hosts *hosts, const char *name, int workers, struct ct_err *err)
{
    struct ct_host *host = find(hosts, name);
    if (host != NULL) {
        /* "a,a" means two workers on a. */
        int before = host->workers > 0 ? host->workers : 1;
        host->workers = before + (workers > 0 ? workers : 1);
        return host->workers <= CT_WORKERS_MAX
                   ? 0
                   : ct_err_set(err, CT_ELIMIT, "host '%s': more than %d workers", name,
                                CT_WORKERS_MAX);
    }
    if (hosts->count == CT_HOSTS_MAX) {
        return ct_err_set(err, CT_ELIMIT, "more than %d hosts", CT_HOSTS_MAX);
    }
    if (hosts->list == NULL) {
        hosts->list = ct_calloc(CT_HOSTS_MAX, sizeof(*hosts->list));
        if (hosts->list == NULL) {
            return ct_err_set(err, CT_ENOMEM, "out of memory for the hosts");
        }
    }
    host = &hosts->list[hosts->count++];
    memcpy(host->name, name, strlen(name) + 1);
    host->workers = workers;
    return 0;
}

static int take_count(const char *text, const char *entry, int *out, struct ct_err *err)
{
    if (ct_parse_int(text, 1, CT_WORKERS_MAX, out) != 0) {
        return ct_err_set(err, CT_EFORMAT,
                          "host '%s': '%s' is not a number of workers from 1 to %d", entry, text,
                          CT_WORKERS_MAX);
    }
    return 0;
}

/* Returns the colon in front of the number of workers, or NULL. The colons of an IPv6 literal
 * without brackets do not count. */
static char *find_count(char *entry)
{
    char *bracket = strchr(entry, ']');
    char *colon = strchr(bracket != NULL ? bracket : entry, ':');
    return colon != NULL && (bracket != NULL || strchr(colon + 1, ':') == NULL) ? colon : NULL;
}

/* HOST or HOST:N; `entry` is one word, and is written to. */
static int take_entry(struct ct_hosts *hosts, char *entry, int workers, struct ct_err *err)
{
    struct ct_endpoint at;
    char *colon = find_count(entry);
    int rc = 0;
    if (colon != NULL) {
        *colon = '\0';
        rc = take_count(colon + 1, entry, &workers, err);
    }
    if (rc == 0) {
        /* A name that begins with a dash would be an option of ssh. */
        rc = entry[0] == '-' ? ct_err_set(err, CT_EFORMAT, "'%s' is not a host name", entry)
                             : ct_endpoint_parse(entry, 0, &at, err);
    }
    if (rc != 0) {
        return rc;
    }
    return add(hosts, at.host, workers, err);
}

int ct_hosts_parse(struct ct_hosts *hosts, const char *text, struct ct_err *err)
{
    char *copy = ct_strdup(text);
    if (copy == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the hosts");
    }
    char *rest = copy;
    int rc = 0;
    for (char *entry; rc == 0 && (entry = strsep(&rest, ",")) != NULL;) {
        rc = entry[0] == '\0' ? ct_err_set(err, CT_EFORMAT, "'%s' names an empty host", text)
                              : take_entry(hosts, entry, 0, err);
    }
    ct_free(copy);
    return rc;
}

/* Takes a line: a host and words. "slots=N" says how many workers; "max_slots=N" is ignored. */
static int take_line(struct ct_hosts *hosts, char *line, struct ct_err *err)
{
    static const char slots[] = "slots=";
    char *entry = NULL;
    int workers = 0, rc = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word; rc == 0 && (word = strsep(&line, BLANKS)) != NULL;) {
        if (word[0] == '\0') {
            continue;
        }
        if (entry == NULL) {
            entry = word;
        } else if (strncmp(word, slots, sizeof(slots) - 1) == 0) {
            rc = take_count(word + sizeof(slots) - 1, entry, &workers, err);
        } else if (strncmp(word, "max_slots=", 10) != 0 && strncmp(word, "max-slots=", 10) != 0) {
            rc = ct_err_set(err, CT_EFORMAT,
                            "'%s' is not understood; only 'slots=N' may follow a host", word);
        }
    }
    return rc != 0 || entry == NULL ? rc : take_entry(hosts, entry, workers, err);
}

int ct_hosts_parse_file(struct ct_hosts *hosts, const char *text, size_t len, const char *path,
                        struct ct_err *err)
{
    if (memchr(text, '\0', len) != NULL) {
        return ct_err_set(err, CT_EFORMAT, "--hostfile %s is not a text", path);
    }
    char *copy = ct_strndup(text, len);
    if (copy == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the hosts");
    }
    char *rest = copy;
    int rc = 0, number = 0;
    for (char *line; rc == 0 && (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        rc = take_line(hosts, line, err);
        if (rc != 0) {
            (void)ct_err_wrap(err, "--hostfile %s, line %d", path, number);
        }
    }
    ct_free(copy);
    if (rc == 0 && hosts->count == 0) {
        rc = ct_err_set(err, CT_EFORMAT, "--hostfile %s names no host", path);
    }
    return rc;
}

int ct_hosts_read(struct ct_hosts *hosts, const char *path, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_file_read(path, FILE_MAX, &text, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "--hostfile");
    } else {
        rc = ct_hosts_parse_file(hosts, (const char *)ct_buf_bytes(&text), text.len, path, err);
    }
    ct_buf_fini(&text);
    return rc;
}
