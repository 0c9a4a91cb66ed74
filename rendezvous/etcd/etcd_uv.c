/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a call copies its request into the queue. The thread takes it, has it done by
 * etcd_transfer.c and puts it into the list of those that are done; the loop is woken, calls back
 * and frees it.
 *
 * Other paths: while the thread waits for etcd, further requests wait in the queue, each with its
 * own deadline.
 *
 * Failure modes: all of them are in the reply of a request. After ct_etcd_close() the running one
 * ends because its wait is woken.
 *
 * Who frees: a request belongs to the list that it is in, and to the thread while it is in none.
 * The thread closes the transfer. Its last act is to wake the loop, which joins it and closes the
 * handle; the close callback frees the client.
 */
#include "rendezvous/etcd/etcd_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/etcd/etcd_transfer.h"
#include "rendezvous/wire/json.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct job {
    struct ct_list link;
    struct ct_etcd_request request;
    struct ct_etcd_reply reply;
    ct_etcd_done done;
    void *data;
};

struct ct_etcd {
    uv_async_t async;
    pthread_t thread;
    int64_t request_ms;
    int num_jobs; /* not answered; only the loop's */

    struct ct_etcd_transfer *transfer; /* the thread's, once it runs */
    atomic_bool closing;
    int wake_fd; /* readable when it is closing */

    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t changed;
    struct ct_list queue, done;
    bool ended; /* the thread touches nothing any more */
};

static void free_job(struct job *job)
{
    ct_buf_fini(&job->request.body);
    ct_etcd_reply_fini(&job->reply);
    ct_free(job);
}

static struct job *first_of(struct ct_list *list)
{
    if (ct_list_empty(list)) {
        return NULL;
    }
    struct job *job = CT_CONTAINER_OF(list->next, struct job, link);
    ct_list_remove(&job->link);
    return job;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void *run(void *data)
{
    struct ct_etcd *etcd = data;
    (void)pthread_mutex_lock(&etcd->mutex);
    while (!atomic_load(&etcd->closing)) {
        struct job *job = first_of(&etcd->queue);
        if (job == NULL) {
            (void)pthread_cond_wait(&etcd->changed, &etcd->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&etcd->mutex);
        ct_etcd_transfer_run(etcd->transfer, &job->request, &job->reply);
        (void)pthread_mutex_lock(&etcd->mutex);
        ct_list_append(&etcd->done, &job->link);
        (void)uv_async_send(&etcd->async);
    }
    (void)pthread_mutex_unlock(&etcd->mutex);
    ct_etcd_transfer_close(etcd->transfer);
    (void)pthread_mutex_lock(&etcd->mutex);
    etcd->ended = true;
    (void)uv_async_send(&etcd->async);
    (void)pthread_mutex_unlock(&etcd->mutex);
    return NULL;
}

/* All signals are blocked in the thread: the loop handles them. */
static int start_thread(struct ct_etcd *etcd)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&etcd->thread, NULL, run, etcd);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* To be called when no thread is there. */
static void free_client(struct ct_etcd *etcd)
{
    struct job *job = NULL;
    while ((job = first_of(&etcd->queue)) != NULL || (job = first_of(&etcd->done)) != NULL) {
        free_job(job);
    }
    (void)pthread_mutex_destroy(&etcd->mutex);
    (void)pthread_cond_destroy(&etcd->changed);
    if (etcd->wake_fd >= 0) {
        (void)close(etcd->wake_fd);
    }
    ct_free(etcd);
}

static void on_closed(uv_handle_t *handle)
{
    free_client(CT_CONTAINER_OF(handle, struct ct_etcd, async));
}

static struct job *take_done(struct ct_etcd *etcd, bool *ended)
{
    (void)pthread_mutex_lock(&etcd->mutex);
    struct job *job = first_of(&etcd->done);
    *ended = etcd->ended;
    (void)pthread_mutex_unlock(&etcd->mutex);
    return job;
}

static void on_async(uv_async_t *async)
{
    struct ct_etcd *etcd = CT_CONTAINER_OF(async, struct ct_etcd, async);
    struct job *job = NULL;
    bool ended;
    while ((job = take_done(etcd, &ended)) != NULL) {
        etcd->num_jobs--;
        if (!atomic_load(&etcd->closing)) {
            job->done(job->data, &job->reply);
        }
        free_job(job);
    }
    if (ended) {
        (void)pthread_join(etcd->thread, NULL);
        uv_close((uv_handle_t *)async, on_closed);
    }
}

static int make_client(const struct ct_etcd_options *options, struct ct_etcd **out,
                       struct ct_err *err)
{
    ct_json_use_our_memory(); /* before the thread needs it */
    const struct ct_etcd_limits limits = {
        .connect_ms = options->connect_ms,
        .attempt_ms = options->attempt_ms,
        .request_ms = options->request_ms,
    };
    struct ct_etcd *etcd = ct_calloc(1, sizeof(*etcd));
    if (etcd == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    etcd->request_ms = options->request_ms;
    ct_list_init(&etcd->queue);
    ct_list_init(&etcd->done);
    /* Without attributes neither can fail. */
    CT_ASSERT(pthread_mutex_init(&etcd->mutex, NULL) == 0);
    CT_ASSERT(pthread_cond_init(&etcd->changed, NULL) == 0);
    etcd->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (etcd->wake_fd < 0) {
        int rc = ct_err_sys(err, CT_EIO, errno, "etcd: cannot make an event descriptor");
        free_client(etcd);
        return rc;
    }
    int rc = ct_etcd_transfer_open(options->settings, &limits, &etcd->closing, etcd->wake_fd,
                                   &etcd->transfer, err);
    if (rc != 0) {
        free_client(etcd);
        return rc;
    }
    *out = etcd;
    return 0;
}

int ct_etcd_open(uv_loop_t *loop, const struct ct_etcd_options *options, struct ct_etcd **out,
                 struct ct_err *err)
{
    const int64_t most = INT64_C(1000) * 3600 * 24; /* a long of 32 bits holds it, too */
    const int64_t times[] = {options->connect_ms, options->attempt_ms, options->request_ms};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        if (times[i] <= 0 || times[i] > most) {
            return ct_err_set(err, CT_EINVAL, "etcd: a time limit is not 1 ms to one day");
        }
    }
    if (options->settings->num_urls <= 0) {
        return ct_err_set(err, CT_EINVAL, "etcd: there is no address");
    }
    struct ct_etcd *etcd = NULL;
    int rc = make_client(options, &etcd, err);
    if (rc != 0) {
        return rc;
    }
    int failed = uv_async_init(loop, &etcd->async, on_async);
    if (failed != 0) {
        ct_etcd_transfer_close(etcd->transfer);
        free_client(etcd);
        return ct_err_set(err, CT_EIO, "etcd: cannot watch for answers: %s", uv_strerror(failed));
    }
    failed = start_thread(etcd);
    if (failed != 0) {
        ct_etcd_transfer_close(etcd->transfer);
        uv_close((uv_handle_t *)&etcd->async, on_closed);
        return ct_err_sys(err, CT_EIO, failed, "etcd: cannot start a thread");
    }
    *out = etcd;
    return 0;
}

void ct_etcd_close(struct ct_etcd *etcd)
{
    const uint64_t one = 1;
    if (etcd == NULL || atomic_load(&etcd->closing)) {
        return;
    }
    (void)pthread_mutex_lock(&etcd->mutex);
    atomic_store(&etcd->closing, true);
    /* The counter is 0, so there is room for one more. */
    CT_ASSERT(write(etcd->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    (void)pthread_cond_signal(&etcd->changed);
    (void)pthread_mutex_unlock(&etcd->mutex);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int new_job(struct ct_etcd *etcd, enum ct_etcd_call call, ct_etcd_done done, void *data,
                   struct job **out, struct ct_err *err)
{
    if (atomic_load(&etcd->closing)) {
        return ct_err_set(err, CT_ECLOSED, "etcd: the client is closed");
    }
    if (etcd->num_jobs >= CT_ETCD_QUEUE_MAX) {
        return ct_err_set(err, CT_EBUSY, "etcd: %d requests wait for an answer already",
                          CT_ETCD_QUEUE_MAX);
    }
    struct job *job = ct_calloc(1, sizeof(*job));
    if (job == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    job->request.call = call;
    job->request.deadline_ns = ct_deadline_in(NULL, etcd->request_ms);
    job->done = done;
    job->data = data;
    *out = job;
    return 0;
}

/* Takes the job, whose body was made with `rc`. */
static int queue_job(struct ct_etcd *etcd, struct job *job, int rc)
{
    if (rc != 0) {
        free_job(job);
        return rc;
    }
    etcd->num_jobs++;
    (void)pthread_mutex_lock(&etcd->mutex);
    ct_list_append(&etcd->queue, &job->link);
    (void)pthread_cond_signal(&etcd->changed);
    (void)pthread_mutex_unlock(&etcd->mutex);
    return 0;
}

int ct_etcd_txn(struct ct_etcd *etcd, const struct ct_etcd_txn *txn, ct_etcd_done done, void *data,
                struct ct_err *err)
{
    struct job *job = NULL;
    int rc = new_job(etcd, CT_ETCD_TXN, done, data, &job, err);
    if (rc != 0) {
        return rc;
    }
    struct ct_etcd_request *request = &job->request;
    return queue_job(etcd, job, ct_etcd_message_txn(txn, &request->shape, &request->body, err));
}

int ct_etcd_grant(struct ct_etcd *etcd, int64_t ttl_s, ct_etcd_done done, void *data,
                  struct ct_err *err)
{
    struct job *job = NULL;
    int rc = new_job(etcd, CT_ETCD_GRANT, done, data, &job, err);
    if (rc != 0) {
        return rc;
    }
    return queue_job(etcd, job, ct_etcd_message_grant(ttl_s, &job->request.body, err));
}

int ct_etcd_keep_alive(struct ct_etcd *etcd, int64_t lease, ct_etcd_done done, void *data,
                       struct ct_err *err)
{
    struct job *job = NULL;
    int rc = new_job(etcd, CT_ETCD_KEEP_ALIVE, done, data, &job, err);
    if (rc != 0) {
        return rc;
    }
    return queue_job(etcd, job, ct_etcd_message_keep_alive(lease, &job->request.body, err));
}
