/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes torchrun's error file: {"message": {"message": ..., "extraInfo": {"py_callstack": "",
 * "timestamp": "<seconds>"}}}. It is written under another name and renamed, so a launcher never
 * reads half of it.
 */
#include "worker/job/job.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Returns the document, which the caller must cJSON_free(), or NULL without memory. */
static char *render(const char *message)
{
    char stamp[32];
    (void)snprintf(stamp, sizeof(stamp), "%lld", (long long)time(NULL));
    char *clean = ct_strdup(message);
    cJSON *root = cJSON_CreateObject();
    char *text = NULL;
    if (clean != NULL && root != NULL) {
        ct_text_make_utf8(clean);
        cJSON *outer = cJSON_AddObjectToObject(root, "message");
        cJSON *extra = NULL;
        if (outer != NULL && cJSON_AddStringToObject(outer, "message", clean) != NULL) {
            extra = cJSON_AddObjectToObject(outer, "extraInfo");
        }
        if (extra != NULL && cJSON_AddStringToObject(extra, "py_callstack", "") != NULL &&
            cJSON_AddStringToObject(extra, "timestamp", stamp) != NULL) {
            text = cJSON_PrintUnformatted(root);
        }
    }
    cJSON_Delete(root);
    ct_free(clean);
    return text;
}

int ctw_job_report_error(const struct ctw_job *job, const char *message, struct ct_err *err)
{
    if (message == NULL) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_report_error: message is NULL");
    }
    const char *path = job != NULL ? job->env.error_file : getenv("TORCHELASTIC_ERROR_FILE");
    if (path == NULL || path[0] == '\0') {
        return 0;
    }
    char *text = render(message);
    if (text == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_file_replace(path, text, strlen(text), err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "error file");
    }
    cJSON_free(text);
    return rc;
}

int ctw_job_report_permanent_error(const struct ctw_job *job, const char *message,
                                   struct ct_err *err)
{
    if (message == NULL) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_report_permanent_error: message is NULL");
    }
    struct progress_page page = {0};
    if (job != NULL) {
        page = job->progress;
    } else {
        progress_map(&page, getenv(CT_PROGRESS_ENV));
    }
    progress_permanent(&page);
    if (job == NULL) {
        progress_close(&page);
    }
    return ctw_job_report_error(job, message, err);
}
