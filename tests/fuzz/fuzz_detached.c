/* SPDX-License-Identifier: Apache-2.0
 *
 * The files `job` and `exit` of a detached job, which another program may have written. What is
 * read is clean and can be written and read again.
 */
#include "tests/fuzz/fuzz.h"

#include "common/alloc.h"
#include "launcher/detach/console_tail.h"
#include "launcher/detach/detached_list.h"

#include <string.h>

static void check_text(const char *text, size_t size)
{
    CT_ASSERT(strnlen(text, size) < size);
    for (; *text != '\0'; text++) {
        CT_ASSERT((unsigned char)*text >= ' ' && *text != 0x7f);
    }
}

static void take_job(const char *text)
{
    struct ct_detached_entry entry = {0}, again = {0};
    struct ct_buf out = CT_BUF_INIT;
    if (!ct_detached_job_parse(text, &entry.job)) {
        return;
    }
    const struct ct_detached_job *job = &entry.job;
    CT_ASSERT(job->pid > 1);
    check_text(job->run_id, sizeof(job->run_id));
    check_text(job->host, sizeof(job->host));
    check_text(job->place, sizeof(job->place));
    check_text(job->address, sizeof(job->address));
    check_text(job->program, sizeof(job->program));
    check_text(job->via, sizeof(job->via));
    check_text(job->agent, sizeof(job->agent));
    check_text(job->ctrun, sizeof(job->ctrun));
    CT_ASSERT(ct_detached_job_print(job, &out) == 0 && out.len < CT_DETACHED_TEXT_MAX);
    CT_ASSERT(ct_detached_job_parse(ct_buf_cstr(&out), &again.job));
    CT_ASSERT(again.job.pid == job->pid && again.job.start == job->start &&
              again.job.begun_s == job->begun_s && strcmp(again.job.host, job->host) == 0 &&
              strcmp(again.job.place, job->place) == 0 &&
              strcmp(again.job.run_id, job->run_id) == 0 &&
              strcmp(again.job.address, job->address) == 0 &&
              strcmp(again.job.program, job->program) == 0 && strcmp(again.job.via, job->via) == 0);
    ct_buf_reset(&out);
    (void)(ct_detached_list_choose(&entry, 1, "x", job->host, &out) < 0);
    ct_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int exit_code = 0;
    int64_t ended_s = 0;
    char *text = ct_calloc(size + 1, 1);
    CT_ASSERT(text != NULL);
    memcpy(text, data, size);
    take_job(text);
    if (ct_detached_job_exit_parse(text, &exit_code, &ended_s)) {
        CT_ASSERT(exit_code >= 0 && exit_code <= 255 && ended_s >= 0);
    }
    CT_ASSERT(ct_console_tail(text, size, 3) <= size);
    ct_free(text);
    return 0;
}
