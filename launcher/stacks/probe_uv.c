/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a thread of libuv's pool asks, and the loop passes on what it has found.
 *
 * Failure modes: a task that is stopped wakes the thread by a pipe, and the loop ends only when the
 * thread has seen it, which takes a moment.
 *
 * Who frees: on_finished(), in any case.
 */
#include "launcher/stacks/probe_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Asking the store on another machine takes less, and without an answer this time is lost. */
#define STORE_MS 300

struct ct_probe_task {
    uv_work_t work;
    struct ct_probe probe;
    struct ct_probe_target *targets;
    struct ct_debug_store store;
    char *store_host;
    int wake[2];           /* closing [1] stops the thread */
    ct_probe_done_fn done; /* NULL = stopped */
    void *data;
};

static void free_task(struct ct_probe_task *task)
{
    if (task->probe.answers != NULL && task->probe.flights != NULL) {
        ct_probe_fini(&task->probe);
    }
    ct_free(task->probe.answers);
    ct_free(task->probe.flights);
    ct_free(task->targets);
    ct_free(task->store_host);
    for (int i = 0; i < 2; i++) {
        if (task->wake[i] >= 0) {
            (void)close(task->wake[i]);
        }
    }
    ct_free(task);
}

static void ask(uv_work_t *work)
{
    struct ct_probe_task *task = CT_CONTAINER_OF(work, struct ct_probe_task, work);
    ct_debug_servers_find(&task->store, ct_deadline_in(NULL, STORE_MS), task->targets,
                          task->probe.count);
    if (ct_probe_run(&task->probe) != 0) {
        /* Without memory the answers are those that came before. */
    }
}

static void on_finished(uv_work_t *work, int status)
{
    struct ct_probe_task *task = CT_CONTAINER_OF(work, struct ct_probe_task, work);
    (void)status;
    if (task->done != NULL) {
        task->done(task->data, &task->probe);
    }
    free_task(task);
}

int ct_probe_task_start(uv_loop_t *loop, const struct ct_probe_task_options *options,
                        struct ct_probe_task **out, struct ct_err *err)
{
    size_t count = (size_t)options->count;
    struct ct_probe_task *task = ct_calloc(1, sizeof(*task));
    if (task == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory");
    }
    task->wake[0] = task->wake[1] = -1;
    task->done = options->done;
    task->data = options->data;
    task->targets = ct_calloc(count, sizeof(*task->targets));
    task->store = options->store;
    task->store_host = options->store.host != NULL ? ct_strdup(options->store.host) : NULL;
    task->store.host = task->store_host;
    task->probe = (struct ct_probe){
        .budget_ms = options->budget_ms,
        .count = options->count,
        .first = options->first,
        .targets = task->targets,
        .answers = ct_calloc(count, sizeof(struct ct_probe_answer)),
        .flights = ct_calloc(count, sizeof(struct ct_flight)),
    };
    if (task->targets == NULL || task->probe.answers == NULL || task->probe.flights == NULL) {
        free_task(task);
        return ct_err_set(err, CT_ENOMEM, "no memory");
    }
    for (int i = 0; i < CT_PROBE_SOURCES; i++) {
        task->probe.tools[i] = options->tools[i];
    }
    memcpy(task->targets, options->targets, count * sizeof(*task->targets));
    int rc = pipe2(task->wake, O_CLOEXEC) == 0 ? 0 : CT_EIO;
    task->probe.stop_fd = task->wake[0];
    if (rc != 0 || uv_queue_work(loop, &task->work, ask, on_finished) != 0) {
        free_task(task);
        return ct_err_set(err, CT_EIO, "no descriptors are left to ask workers");
    }
    *out = task;
    return 0;
}

void ct_probe_task_stop(struct ct_probe_task *task)
{
    if (task != NULL) {
        task->done = NULL;
        (void)close(task->wake[1]); /* poll(2) in the thread sees the end of the pipe */
        task->wake[1] = -1;
    }
}
