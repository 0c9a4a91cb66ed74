/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that plays a member of etcd, at a free port of 127.0.0.1: it answers as it was told,
 * request by request, and keeps what it was sent.
 */
#ifndef CT_TESTS_LIB_ETCD_MEMBER_H
#define CT_TESTS_LIB_ETCD_MEMBER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ETCD_MEMBER_REQUESTS_MAX 8

enum etcd_manner {
    ETCD_ANSWER, /* with the body and the status */
    ETCD_SILENT, /* nothing, until the client hangs up */
    ETCD_ENDLESS,
    ETCD_LONG_LINE, /* a header without an end */
};

struct etcd_step {
    enum etcd_manner manner;
    int status;
    const char *body;
};

/* The last step is repeated. */
struct etcd_member {
    int fd;
    uint16_t port;
    pthread_t thread;
    struct etcd_step steps[ETCD_MEMBER_REQUESTS_MAX];
    int num_steps;
    atomic_int num_requests;
    atomic_bool hung_up;
    char requests[ETCD_MEMBER_REQUESTS_MAX][2048]; /* to be read when the thread has ended */
};

/* Gives a socket that has a port of its own, at which nobody listens. */
int etcd_member_bind(uint16_t *port);

void etcd_member_start(struct etcd_member *m, const struct etcd_step *steps, int num);

void etcd_member_stop(struct etcd_member *m);

#endif
