/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of --report: the document that job_story.h makes, written whole or not at all.
 */
#ifndef CT_LAUNCHER_REPORT_REPORT_FILE_H
#define CT_LAUNCHER_REPORT_REPORT_FILE_H

#include "common/err.h"
#include "launcher/report/job_story.h"

/* Errors as ct_file_replace(), and CT_ENOMEM; the text begins with "--report: ". */
CT_MUST_CHECK int ct_report_file_write(const char *path, const struct ct_job_story *story,
                                       const struct ct_job_end *end, struct ct_err *err);

/* The same for a job that ended before this machine joined it; `why` says what prevented it. Does
 * nothing when `path` is NULL. */
CT_MUST_CHECK int ct_report_file_not_started(const char *path, const struct ct_job_end *end,
                                             const char *why, struct ct_err *err);

#endif
