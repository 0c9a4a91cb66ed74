/* SPDX-License-Identifier: Apache-2.0
 *
 * What the folder of a detached job says: the file `job` has a line "key value" for each field, and
 * the file `exit` has one line. Both are read back by another ctrun, so nothing in them is trusted.
 * Pure.
 */
#ifndef CT_LAUNCHER_DETACH_DETACHED_JOB_H
#define CT_LAUNCHER_DETACH_DETACHED_JOB_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/host_list.h"
#include "common/job_registry.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The id names the folder: a run id that was cut, a dash and eight random digits. */
#define CT_DETACHED_ID_MAX 96
/* The id of a start of the machine and a namespace of processes. */
#define CT_DETACHED_PLACE_MAX 96
/* Half of the machine's id: machine-id(5) asks to show nobody the whole. */
#define CT_DETACHED_MACHINE_MAX 17
/* More than the longest file `job`. */
#define CT_DETACHED_TEXT_MAX 4096
/* The file `exit` has this length from the start, so that it can be rewritten on a full disk. */
#define CT_DETACHED_EXIT_SIZE 32
#define CT_DETACHED_RANDOM 4
/* Longer ones are not kept, and then that machine does not lead to the job. */
#define CT_DETACHED_AGENT_MAX 512
#define CT_DETACHED_CTRUN_MAX 768

struct ct_detached_job {
    char id[CT_DETACHED_ID_MAX];           /* the name of its folder, which is not in the file */
    char run_id[CT_JOB_NAME_MAX];          /* --rdzv-id */
    char host[CT_HOST_MAX];                /* the machine on which its ctrun runs */
    char place[CT_DETACHED_PLACE_MAX];     /* where `pid` and `start` mean something */
    char machine[CT_DETACHED_MACHINE_MAX]; /* "" = it has no id, or an old ctrun wrote this */
    pid_t pid;                             /* of that ctrun */
    uint64_t start;                        /* when that process began, as in /proc/PID/stat */
    int64_t begun_s;                       /* Unix time */
    char address[CT_JOB_ADDRESS_MAX];      /* HOST:PORT of its store; "" = not known yet */
    char program[CT_JOB_PROGRAM_MAX];
    /* Names the machines that may go on with the job when this one is lost, and `word` is what
     * --attach finds it by there. "" = the job ends then. */
    char others[CT_HOST_LIST_MAX];
    char word[CT_DETACHED_ID_MAX];
    /* On a machine that has only started the job: the machine that shows it, the launch agent that
     * leads there, and the path of ctrun there. "" = the job is here. */
    char via[CT_HOST_MAX];
    char agent[CT_DETACHED_AGENT_MAX];
    char ctrun[CT_DETACHED_CTRUN_MAX];
};

/* Where this process is. */
struct ct_detached_here {
    const char *host;
    char place[CT_DETACHED_PLACE_MAX];
    char machine[CT_DETACHED_MACHINE_MAX];
};

/* Where the ctrun of a job is, as seen from there. */
enum ct_detached_where {
    CT_DETACHED_HERE,      /* its process id means the same */
    CT_DETACHED_BEFORE,    /* on this machine, before it was started again */
    CT_DETACHED_CONTAINER, /* on this machine, but its processes cannot be seen */
    CT_DETACHED_NAMESAKE,  /* on another machine that has this name, too */
    CT_DETACHED_OTHER,     /* on another machine */
};

enum ct_detached_where ct_detached_job_where(const struct ct_detached_job *job,
                                             const struct ct_detached_here *here);

/* Makes the id of a new job. `run_id` is the one that the user gave; NULL = none. */
void ct_detached_job_name(const char *run_id, const unsigned char random[CT_DETACHED_RANDOM],
                          char out[CT_DETACHED_ID_MAX]);

/* May a folder of a job have this name? Letters, digits, dots, dashes and underscores; no dot in
 * front. */
bool ct_detached_job_is_name(const char *name);

/* Appends the text of the file `job`. CT_ENOMEM. */
CT_MUST_CHECK int ct_detached_job_print(const struct ct_detached_job *job, struct ct_buf *out);

/* Reads it; `id` stays empty. Returns false if it makes no sense. Texts are cleaned for a terminal.
 */
bool ct_detached_job_parse(const char *text, struct ct_detached_job *out);

/* Writes the content of the file `exit`; `exit_code` is -1 while the job runs. */
void ct_detached_job_exit_text(int exit_code, int64_t time_s, char out[CT_DETACHED_EXIT_SIZE + 1]);

/* Reads it. Returns false while the job runs, or if the text makes no sense. */
bool ct_detached_job_exit_parse(const char *text, int *exit_code, int64_t *time_s);

#endif
