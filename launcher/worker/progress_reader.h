/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's side of the progress page (common/progress_page.h): one file in memory for the
 * workers of this machine. The launcher copies it before it reads it, so no worker can harm the
 * launcher.
 */
#ifndef CT_LAUNCHER_WORKER_PROGRESS_READER_H
#define CT_LAUNCHER_WORKER_PROGRESS_READER_H

#include "common/log.h"
#include "common/progress_page.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_progress_reader {
    int fd;        /* -1 = there are none */
    int workers;   /* slots */
    char path[64]; /* by which workers open it; "" = there are none */
};

#define CT_PROGRESS_READER_INIT \
    {                           \
        -1, 0, ""               \
    }

/* Where that fails the job runs without pages: a warning says so. */
void ct_progress_reader_open(struct ct_progress_reader *reader, int workers,
                             const struct ct_log *log);
void ct_progress_reader_fini(struct ct_progress_reader *reader); /* repeated calls are allowed */

/* Forgets what a worker of an earlier generation has written. For a worker that is `kept`, the page
 * still says that it stays, until it writes the next time stamp. */
void ct_progress_reader_reset(struct ct_progress_reader *reader, int local_rank, bool kept);

/* Can the worker go on in another generation, or has it even parked after `generation`? */
enum ct_stay ct_progress_reader_stay(const struct ct_progress_reader *reader, int local_rank,
                                     int generation);

/* Has the worker said that a restart cannot help (ctw_job_report_permanent_error())? */
bool ct_progress_reader_permanent(const struct ct_progress_reader *reader, int local_rank);

/* Reads the page of worker `local_rank`. False when it has written none, or nothing valid. */
bool ct_progress_reader_read(const struct ct_progress_reader *reader, int local_rank,
                             int64_t now_ns, struct ct_progress *out);

/* Reads the pages of all workers, many with one system call. valid[i] says whether out[i] was
 * written. Both have room for `reader->workers`. */
void ct_progress_reader_read_all(const struct ct_progress_reader *reader, int64_t now_ns,
                                 struct ct_progress *out, bool *valid);

/* When the first of the workers had completed its first step; 0 = none has said so. */
int64_t ct_progress_reader_first_step_ns(const struct ct_progress_reader *reader, int64_t now_ns);

#endif
