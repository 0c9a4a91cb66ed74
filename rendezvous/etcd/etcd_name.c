/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: open() starts a thread, which asks getaddrinfo(3), keeps the addresses and ends.
 * get() finds them.
 *
 * Other paths: get() comes earlier, or the addresses are old; then it waits for the descriptor that
 * the thread makes readable. A lookup that fails leaves the addresses of the one before as they
 * are.
 *
 * Failure modes: a thread that cannot be started is a lookup that has failed.
 *
 * Who frees: the caller of open() and a running thread have a reference each; the last one frees.
 */
#include "rendezvous/etcd/etcd_name.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* No lookup begins earlier than this after the end of the one before. */
#define PAUSE_NS CT_NS_PER_S
/* Addresses that were found, or have answered, this long ago are old. libcurl forgets its own after
 * the same time. */
#define FRESH_NS (60 * CT_NS_PER_S)

struct ct_etcd_name {
    char host[CT_HOST_MAX];
    uint16_t port;
    int ended_fd; /* readable after a lookup has ended */

    pthread_mutex_t mutex; /* of all below */
    int references;
    bool running;
    int64_t ended_ns;             /* the end of the last lookup; INT64_MIN = none has ended */
    char known[CT_ETCD_NAME_MAX]; /* "" = no address has been found yet */
    int64_t good_ns;              /* when these were found, or one of them has answered last */
    struct ct_err why;            /* why the last lookup has failed */
};

static void release(struct ct_etcd_name *name)
{
    name->references--;
    bool last = name->references == 0;
    (void)pthread_mutex_unlock(&name->mutex);
    if (last) {
        (void)pthread_mutex_destroy(&name->mutex);
        (void)close(name->ended_fd);
        ct_free(name);
    }
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* Puts "HOST:PORT:ADDRESS,[V6-ADDRESS]" together. */
static void print_addresses(const struct ct_etcd_name *name, const struct addrinfo *list,
                            char out[CT_ETCD_NAME_MAX])
{
    int len = snprintf(out, CT_ETCD_NAME_MAX, "%s:%u", name->host, (unsigned)name->port);
    for (int i = 0; list != NULL && i < CT_ETCD_ADDRESSES_MAX; i++, list = list->ai_next) {
        char address[CT_ADDR_TEXT_MAX];
        ct_addr_host(list->ai_addr, address, sizeof(address));
        bool v6 = strchr(address, ':') != NULL;
        len += snprintf(out + len, CT_ETCD_NAME_MAX - (size_t)len, "%c%s%s%s", i == 0 ? ':' : ',',
                        v6 ? "[" : "", address, v6 ? "]" : "");
    }
}

/* The lookup has ended with what getaddrinfo(3) has returned. The lock is held. */
static void take_result(struct ct_etcd_name *name, int failed, int sys, const struct addrinfo *list)
{
    const uint64_t one = 1;
    name->running = false;
    name->ended_ns = ct_clock_now(NULL);
    if (failed == 0) {
        print_addresses(name, list, name->known);
        name->good_ns = name->ended_ns;
    } else {
        (void)ct_err_set(&name->why, failed == EAI_MEMORY ? CT_ENOMEM : CT_EIO,
                         "cannot resolve host '%s': %s", name->host,
                         failed == EAI_SYSTEM ? strerror(sys) : gai_strerror(failed));
    }
    /* It is read before each lookup, so there is room for one more. */
    CT_ASSERT(write(name->ended_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

static void *look_up(void *data)
{
    struct ct_etcd_name *name = data;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int failed = getaddrinfo(name->host, NULL, &hints, &list);
    int sys = errno;
    (void)pthread_mutex_lock(&name->mutex);
    take_result(name, failed, sys, list);
    release(name);
    if (failed == 0) {
        freeaddrinfo(list);
    }
    return NULL;
}

/* All signals are blocked in the thread: the loop handles them. */
static int start_thread(struct ct_etcd_name *name)
{
    pthread_t thread;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, look_up, name);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0) {
        (void)pthread_detach(thread);
    }
    return failed;
}

/* Begins a lookup unless one runs or has just ended. The lock is held. */
static void begin(struct ct_etcd_name *name)
{
    uint64_t count;
    if (name->running ||
        (name->ended_ns != INT64_MIN && ct_clock_now(NULL) < name->ended_ns + PAUSE_NS)) {
        return;
    }
    (void)!read(name->ended_fd, &count, sizeof(count)); /* of the lookup before; it never blocks */
    name->running = true;
    name->references++;
    int failed = start_thread(name);
    if (failed != 0) {
        name->references--;
        take_result(name, EAI_SYSTEM, failed, NULL);
    }
}

/* ---- calls ---------------------------------------------------------------------------------- */

int ct_etcd_name_open(const char *host, uint16_t port, struct ct_etcd_name **out,
                      struct ct_err *err)
{
    struct ct_etcd_name *name = ct_calloc(1, sizeof(*name));
    if (name == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    (void)snprintf(name->host, sizeof(name->host), "%s", host);
    name->port = port;
    name->references = 1;
    name->ended_ns = INT64_MIN;
    name->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (name->ended_fd < 0) {
        int rc = ct_err_sys(err, CT_EIO, errno, "etcd: cannot make an event descriptor");
        ct_free(name);
        return rc;
    }
    CT_ASSERT(pthread_mutex_init(&name->mutex, NULL) == 0); /* without attributes it cannot fail */
    (void)pthread_mutex_lock(&name->mutex);
    begin(name);
    (void)pthread_mutex_unlock(&name->mutex);
    *out = name;
    return 0;
}

/* Begins a lookup if one is needed. Returns 0 with the addresses, CT_EBUSY if a lookup should be
 * waited for (then `out` has the old addresses, or is ""), or why it has failed. */
static int look(struct ct_etcd_name *name, char out[CT_ETCD_NAME_MAX], struct ct_err *err)
{
    int rc = 0;
    (void)pthread_mutex_lock(&name->mutex);
    bool known = name->known[0] != '\0';
    bool needed = !known || ct_clock_now(NULL) >= name->good_ns + FRESH_NS;
    memcpy(out, name->known, sizeof(name->known));
    if (needed) {
        begin(name);
    }
    if (needed && name->running) {
        rc = CT_EBUSY;
    } else if (!known) {
        *err = name->why;
        rc = err->code;
    }
    (void)pthread_mutex_unlock(&name->mutex);
    return rc;
}

int ct_etcd_name_get(struct ct_etcd_name *name, int64_t deadline_ns, int wake_fd,
                     char out[CT_ETCD_NAME_MAX], struct ct_err *err)
{
    for (;;) {
        struct pollfd ready[] = {{.fd = wake_fd, .events = POLLIN},
                                 {.fd = name->ended_fd, .events = POLLIN}};
        int rc = look(name, out, err);
        if (rc != CT_EBUSY) {
            return rc;
        }
        int left_ms = ct_deadline_left_ms(NULL, deadline_ns);
        if (left_ms == 0 && out[0] != '\0') {
            return 0;
        }
        if (left_ms == 0) {
            return ct_err_set(err, CT_ETIMEDOUT, "host '%s' is still being looked up", name->host);
        }
        if (poll(ready, 2, left_ms) > 0 && ready[0].revents != 0) {
            return ct_err_set(err, CT_EABORTED, "it was closed");
        }
    }
}

void ct_etcd_name_answered(struct ct_etcd_name *name)
{
    (void)pthread_mutex_lock(&name->mutex);
    name->good_ns = ct_clock_now(NULL);
    (void)pthread_mutex_unlock(&name->mutex);
}

void ct_etcd_name_renew(struct ct_etcd_name *name)
{
    (void)pthread_mutex_lock(&name->mutex);
    begin(name);
    (void)pthread_mutex_unlock(&name->mutex);
}

void ct_etcd_name_close(struct ct_etcd_name *name)
{
    if (name != NULL) {
        (void)pthread_mutex_lock(&name->mutex);
        release(name);
    }
}
