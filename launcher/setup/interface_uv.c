/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a detached thread looks, writes what it found into a pipe and ends; the loop reads
 * it.
 *
 * Failure modes: after the timeout or a stop the thread goes on, finds the pipe closed and ends. It
 * owns everything that it uses. It may also be cut off by the end of the process.
 *
 * Who frees: the thread frees its task, ct_interface_search_stop() closes the loop's handles.
 */
#include "launcher/setup/interface_uv.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/list.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

struct task {
    char name[CT_HOST_MAX], local_addr[CT_HOST_MAX];
    char *const *env;
    int fd;
};

static void *look(void *data)
{
    struct task *task = data;
    struct ct_interface_facts facts;
    ct_interface_look(task->name, task->local_addr, task->env, &facts);
    if (ct_fd_write_all(task->fd, &facts, sizeof(facts)) != 0) {
        /* The loop has stopped waiting, so nobody needs the answer. */
    }
    (void)close(task->fd);
    ct_free(task);
    return NULL;
}

/* All signals are blocked in the thread: the loop handles them. */
static bool start_thread(struct task *task)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr) != 0) {
        return false;
    }
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &attr, look, task) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return started;
}

static void finish(struct ct_interface_search *search)
{
    ct_interface_search_stop(search);
    search->on_done(search->data);
}

/* The facts are shorter than PIPE_BUF, so they come in one piece. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct ct_interface_search *search = CT_CONTAINER_OF(poll, struct ct_interface_search, poll);
    struct ct_interface_facts facts;
    (void)status;
    (void)events;
    if (read(search->fd, &facts, sizeof(facts)) == (ssize_t)sizeof(facts)) {
        search->facts = facts;
    }
    finish(search);
}

static void on_timer(uv_timer_t *timer)
{
    finish(CT_CONTAINER_OF(timer, struct ct_interface_search, timer));
}

void ct_interface_search_start(struct ct_interface_search *search, uv_loop_t *loop,
                               const char *name, const char *local_addr, char *const *env,
                               void (*on_done)(void *data), void *data)
{
    int fds[2];
    struct task *task = ct_calloc(1, sizeof(*task));
    *search = (struct ct_interface_search){.on_done = on_done, .data = data};
    (void)snprintf(search->facts.name, sizeof(search->facts.name), "%s", name);
    if (task == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        ct_free(task);
        return;
    }
    (void)snprintf(task->name, sizeof(task->name), "%s", name);
    (void)snprintf(task->local_addr, sizeof(task->local_addr), "%s", local_addr);
    task->env = env;
    task->fd = fds[1];
    search->fd = fds[0];
    if (uv_poll_init(loop, &search->poll, fds[0]) != 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        ct_free(task);
        return;
    }
    CT_ASSERT(uv_timer_init(loop, &search->timer) == 0); /* cannot fail */
    search->pending = true;
    if (!start_thread(task)) {
        (void)close(task->fd);
        ct_free(task);
        ct_interface_search_stop(search);
        return;
    }
    (void)uv_poll_start(&search->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    (void)uv_timer_start(&search->timer, on_timer, CT_INTERFACE_LOOK_MS, 0);
}

void ct_interface_search_stop(struct ct_interface_search *search)
{
    if (search->pending) {
        search->pending = false;
        (void)uv_poll_stop(&search->poll);
        uv_close((uv_handle_t *)&search->poll, NULL);
        uv_close((uv_handle_t *)&search->timer, NULL);
        (void)close(search->fd);
    }
}
