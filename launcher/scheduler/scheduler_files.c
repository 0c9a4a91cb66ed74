/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch systems that write the hosts of a job into a file and start only the batch script.
 */
#include "common/alloc.h"
#include "common/file.h"
#include "common/num.h"
#include "launcher/scheduler/scheduler_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest list of CT_MAX_NODES names with a few slots each. */
#define FILE_MAX ((size_t)64 << 20)

struct line {
    const char *text;
    size_t number;
    int slots;
    bool again; /* a line above has the same text */
};

struct file {
    const struct ct_scheduler_scan *scan;
    const char *variable;
    struct line *lines;
    size_t count;
};

int ct_scheduler_read_file(void *data, const char *path, size_t max, struct ct_buf *out,
                           struct ct_err *err)
{
    (void)data;
    return ct_file_read(path, max, out, err);
}

bool ct_scheduler_lsf_drop(const char *line)
{
    return strncmp(line, "batch", strlen("batch")) == 0 ||
           strncmp(line, "login", strlen("login")) == 0;
}

/* "gpu-4" and "gpu-4.cluster.example" are one machine. */
static bool same_host(const char *a, const char *b)
{
    size_t len_a = strcspn(a, "."), len_b = strcspn(b, ".");
    return len_a == len_b && memcmp(a, b, len_a) == 0 &&
           (a[len_a] == '\0' || b[len_b] == '\0' || strcmp(a, b) == 0);
}

/* The number that follows the first word, as in Grid Engine's "HOST SLOTS QUEUE CPUS"; else 1. */
static int slots_of(const char *rest)
{
    char word[16];
    int slots;
    rest += strspn(rest, " \t");
    (void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(rest, " \t\r#"), rest);
    return ct_parse_int(word, 1, CT_MAX_WORLD, &slots) == 0 ? slots : 1;
}

/* Cuts the text into lines and keeps the first word of each, and a number that follows it. */
static int cut(struct file *file, char *text, bool (*drop)(const char *line))
{
    size_t count = 1;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        count++;
    }
    file->lines = ct_calloc(count, sizeof(*file->lines));
    if (file->lines == NULL) {
        return ct_err_set(file->scan->err, CT_ENOMEM, "out of memory for %s", file->variable);
    }
    for (char *next; text != NULL; text = next) {
        next = strchr(text, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        text += strspn(text, " \t");
        char *end = text + strcspn(text, " \t\r#");
        int slots = slots_of(end);
        *end = '\0';
        if (strlen(text) >= CT_HOST_MAX) {
            return ct_err_set(file->scan->err, CT_EFORMAT, "%s: a line is longer than a host name",
                              file->variable);
        }
        if (text[0] != '\0' && (drop == NULL || !drop(text))) {
            file->lines[file->count] =
                (struct line){.text = text, .number = file->count, .slots = slots};
            file->count++;
        }
    }
    return 0;
}

static int by_text(const void *a, const void *b)
{
    const struct line *p = a, *q = b;
    int order = strcmp(p->text, q->text);
    return order != 0 ? order : (p->number > q->number) - (p->number < q->number);
}

static int by_number(const void *a, const void *b)
{
    const struct line *p = a, *q = b;
    return (p->number > q->number) - (p->number < q->number);
}

static void mark_repetitions(struct file *file)
{
    qsort(file->lines, file->count, sizeof(*file->lines), by_text);
    for (size_t i = 1; i < file->count; i++) {
        file->lines[i].again = strcmp(file->lines[i].text, file->lines[i - 1].text) == 0;
    }
    qsort(file->lines, file->count, sizeof(*file->lines), by_number);
}

static int collect(struct file *file, struct ct_strlist *hosts, int *index, int *slots)
{
    const struct ct_scheduler_scan *scan = file->scan;
    int own_index = -1, own_slots = 0, rc = 0;
    for (size_t i = 0; rc == 0 && i < file->count; i++) {
        const struct line *line = &file->lines[i];
        bool own = same_host(line->text, scan->in->host);
        own_slots += own && own_slots < CT_MAX_WORLD ? line->slots : 0;
        if (line->again) {
            continue;
        }
        if (hosts->count == CT_MAX_NODES) {
            return ct_err_set(scan->err, CT_EFORMAT, "%s: more than %d hosts", file->variable,
                              CT_MAX_NODES);
        }
        own_index = own && own_index < 0 ? (int)hosts->count : own_index;
        rc = ct_strlist_printf(hosts, "%s", line->text);
    }
    if (rc != 0 || ct_strlist_close(hosts) != 0) {
        return ct_err_set(scan->err, CT_ENOMEM, "out of memory for %s", file->variable);
    }
    if (hosts->count == 0) {
        return ct_err_set(scan->err, CT_EFORMAT, "%s: the file names no host", file->variable);
    }
    *index = own_index;
    *slots = own_slots;
    return 0;
}

int ct_scheduler_hosts_file(const struct ct_scheduler_scan *scan, const char *variable,
                            bool (*drop)(const char *line), struct ct_strlist *hosts, int *index,
                            int *slots)
{
    struct file file = {.scan = scan, .variable = variable};
    struct ct_buf content = CT_BUF_INIT;
    int rc = scan->in->read(scan->in->data, ct_scheduler_get(scan, variable), FILE_MAX, &content,
                            scan->err);
    if (rc != 0) {
        (void)ct_err_wrap(scan->err, "%s", variable);
        rc = rc == CT_ENOMEM ? rc : CT_EFORMAT;
        goto out;
    }
    if (ct_buf_cstr(&content) == NULL) {
        rc = ct_err_set(scan->err, CT_ENOMEM, "out of memory for %s", variable);
        goto out;
    }
    rc = cut(&file, (char *)ct_buf_bytes(&content), drop);
    if (rc != 0) {
        goto out;
    }
    mark_repetitions(&file);
    rc = collect(&file, hosts, index, slots);
out:
    ct_free(file.lines);
    ct_buf_fini(&content);
    return rc;
}

/* The rank of a node is its index in the file. A ctrun that a batch script starts on the first host
 * only cannot be told from one that is started on every host, so both get the warning. */
static int from_file(const struct ct_scheduler_scan *scan, const char *variable, const char *job_id,
                     const char *kind, bool (*drop)(const char *line))
{
    struct ct_scheduler *out = scan->out;
    int index, slots;
    int rc = ct_scheduler_hosts_file(scan, variable, drop, &out->hosts, &index, &slots);
    if (rc != 0) {
        return rc;
    }
    out->hosts_from = variable;
    out->nnodes = (struct ct_scheduler_int){(int)out->hosts.count, variable};
    ct_scheduler_first_host(scan, out->hosts.list[0], strlen(out->hosts.list[0]), variable);
    ct_scheduler_job_id(scan, kind, job_id);
    if (index < 0 && out->nnodes.value == 1) {
        index = 0; /* the only host must be this one */
    }
    if (index < 0) {
        return ct_err_set(
            scan->err, CT_EINVAL,
            "this host, %.64s, is not among the %zu of %s: pass --nnodes, --node-rank "
            "and --master-addr, or --standalone",
            scan->in->host, out->hosts.count, variable);
    }
    out->node_rank = (struct ct_scheduler_int){index, variable};
    if (slots > 1) {
        out->nproc = (struct ct_scheduler_int){slots, variable};
    }
    if (out->nnodes.value > 1) {
        (void)snprintf(out->warning, sizeof(out->warning),
                       "%s lists %d hosts: ctrun has to be started on each of them", variable,
                       out->nnodes.value);
    }
    return 0;
}

int ct_scheduler_pbs(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "PBS_NODEFILE") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_PBS, "a PBS job", "PBS_NODEFILE is set");
    return from_file(scan, "PBS_NODEFILE", "PBS_JOBID", "pbs", NULL);
}

int ct_scheduler_lsf(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "LSB_DJOB_HOSTFILE") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_LSF, "an LSF job", "LSB_DJOB_HOSTFILE is set");
    int rc = from_file(scan, "LSB_DJOB_HOSTFILE", "LSB_JOBID", "lsf", ct_scheduler_lsf_drop);
    /* The elements of an array have the same id. Other jobs have index 0. */
    ct_scheduler_job_part(scan, "LSB_JOBINDEX", 1, "LSB_JOBID and LSB_JOBINDEX");
    return rc;
}

int ct_scheduler_sge(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "PE_HOSTFILE") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_SGE, "a Grid Engine job", "PE_HOSTFILE is set");
    int rc = from_file(scan, "PE_HOSTFILE", "JOB_ID", "sge", NULL);
    /* The tasks of an array have the same id. Other jobs have the task "undefined". */
    ct_scheduler_job_part(scan, "SGE_TASK_ID", 1, "JOB_ID and SGE_TASK_ID");
    return rc;
}
