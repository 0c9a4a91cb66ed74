/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the story becomes JSON in memory, which replaces the file in one step.
 *
 * Failure modes: the file cannot be written, or memory is out; then an older report stays as it is.
 */
#include "launcher/report/report_file.h"

#include "common/file.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>

int ct_report_file_write(const char *path, const struct ct_job_story *story,
                         const struct ct_job_end *end, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_job_story_json(story, end, &text);
    if (rc != 0) {
        rc = ct_err_set(err, rc, "--report: out of memory");
        goto out;
    }
    rc = ct_file_replace(path, ct_buf_bytes(&text), text.len, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "--report");
    }
out:
    ct_buf_fini(&text);
    return rc;
}

int ct_report_file_not_started(const char *path, const struct ct_job_end *end, const char *why,
                               struct ct_err *err)
{
    struct ct_job_story story;
    if (path == NULL) {
        return 0;
    }
    ct_json_use_our_memory();
    ct_job_story_init(&story, 0, 0);
    (void)snprintf(story.why, sizeof(story.why), "%.*s", (int)sizeof(story.why) - 1, why);
    int rc = ct_report_file_write(path, &story, end, err);
    ct_job_story_fini(&story);
    return rc;
}
