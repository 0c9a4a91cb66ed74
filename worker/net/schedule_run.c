/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a schedule in a loop over poll(): sends what may be sent, receives what has arrived, and
 * adds it, until both directions are finished. It fails if a link breaks, a header does not fit, or
 * the deadline passes; then the caller tells the other hosts. The caller owns all memory.
 */
#include "worker/net/schedule_run.h"

#include "common/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* The most that one send() writes, so that the other direction gets its turn. */
#define SEND_MOST ((size_t)512 * 1024)

struct run {
    const struct schedule_run *flow;
    struct net_header header;
    bool moved;    /* bytes were sent or received in this turn */
    bool starving; /* in this turn it waits for local ranks to add */

    size_t sending; /* the step that is sent */
    bool started;   /* that step may be sent */
    size_t sent;    /* bytes of its header, then of its range */

    size_t receiving;
    struct net_header theirs;
    size_t got;  /* bytes of the header, then of the range, of the step that is received */
    size_t done; /* bytes of that range that are stored or added */
};

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Handles a failed send() or recv(): 0 if trying again may help. */
static int failed(struct run *run, const struct net_link *link, ssize_t n, struct ct_err *err)
{
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return net_lost(run->flow->net, link, n < 0 ? errno : 0, err);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Copies what a step sends, before the sum replaces it. */
static void copy_range(const struct schedule_run *flow, const struct schedule_step *step)
{
    for (size_t at = step->send_begin; at < step->send_end;) {
        size_t bytes = step->send_end - at;
        const unsigned char *from;
        if (step->send_own && flow->own != NULL) {
            from = flow->own + at;
        } else {
            from = view_at(&flow->view, at, &bytes);
            bytes = min(bytes, step->send_end - at);
        }
        memcpy(flow->copies + at, from, bytes);
        at += bytes;
    }
}

/* May the step be sent? Either all earlier steps have been received, or there is something to pass
 * on. Empty steps wait as well, so an empty schedule is a barrier. */
static bool may_start(struct run *run, const struct schedule_step *step)
{
    bool flowing = step->follows && run->receiving + 1 == run->sending && run->done > 0;
    if (!run->started && (flowing || run->receiving >= run->sending)) {
        run->started = true;
        if (step->copy) {
            copy_range(run->flow, step);
        }
    }
    return run->started;
}

/* Returns how far the range may be sent. */
static size_t send_limit(struct run *run, const struct schedule_step *step, size_t at)
{
    if (step->follows && run->receiving < run->sending) {
        return step->send_begin + run->done;
    }
    if (step->send_own && run->flow->own_sum != NULL) {
        size_t limit = leader_sum_ready(run->flow->own_sum, LEADER_SUM_SENT, 0, step->send_begin,
                                        at, step->send_end);
        run->starving |= limit == at;
        return limit;
    }
    return step->send_end;
}

static const unsigned char *send_from(struct run *run, const struct schedule_step *step, size_t at,
                                      size_t *bytes)
{
    const struct schedule_run *flow = run->flow;
    if (step->copy) {
        return flow->copies + at;
    }
    if (step->send_own && flow->own != NULL) {
        return flow->own + at;
    }
    return view_at(&flow->view, at, bytes);
}

static int push(struct run *run, bool *blocked, struct ct_err *err)
{
    const struct schedule_run *flow = run->flow;
    *blocked = false;
    while (run->sending < flow->schedule->count) {
        const struct schedule_step *step = &flow->schedule->steps[run->sending];
        size_t at = step->send_begin;
        if (run->sent > sizeof(run->header)) {
            at += run->sent - sizeof(run->header);
        }
        if (step->to == SCHEDULE_NOBODY ||
            (at == step->send_end && run->sent >= sizeof(run->header))) {
            run->sending++;
            run->started = false;
            run->sent = 0;
            run->moved = true;
            continue;
        }
        if (!may_start(run, step)) {
            return 0;
        }
        const struct net_link *link = &flow->net->links[step->to];
        const unsigned char *from;
        size_t bytes;
        int more = 0;
        if (run->sent < sizeof(run->header)) {
            run->header.step = (uint32_t)run->sending;
            from = (const unsigned char *)&run->header + run->sent;
            bytes = sizeof(run->header) - run->sent;
            more = step->send_begin < step->send_end ? MSG_MORE : 0;
        } else {
            size_t limit = send_limit(run, step, at);
            if (limit <= at) {
                return 0;
            }
            bytes = SEND_MOST;
            from = send_from(run, step, at, &bytes);
            bytes = min(min(bytes, SEND_MOST), limit - at);
        }
        ssize_t n = send(link->fd, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL | more);
        if (n < 0) {
            *blocked = true;
            return failed(run, link, n, err);
        }
        run->sent += (size_t)n;
        run->moved = true;
        if ((size_t)n == SEND_MOST) {
            return 0;
        }
    }
    return 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static int recv_header(struct run *run, struct net_link *link, struct ct_err *err)
{
    ssize_t n = recv(link->fd, (unsigned char *)&run->theirs + run->got,
                     sizeof(run->theirs) - run->got, MSG_DONTWAIT);
    if (n <= 0) {
        return failed(run, link, n, err);
    }
    run->moved = true;
    run->got += (size_t)n;
    link->within = true;
    if (run->got < sizeof(run->theirs)) {
        return 0;
    }
    return net_check(run->flow->net, link->node, &run->theirs, &run->header, err);
}

/* Adds the received bytes as far as this host's own numbers are ready. Moves the rest to the front
 * of the scratch, so that no float is split at its end. */
static void add_scratch(struct run *run, const struct schedule_step *step)
{
    const struct schedule_run *flow = run->flow;
    size_t have = run->got - sizeof(run->header) - run->done;
    size_t at = step->recv_begin + run->done, limit = at + have / sizeof(float) * sizeof(float);
    if (step->recv_own && flow->own_sum != NULL) {
        size_t ready = leader_sum_ready(flow->own_sum, LEADER_SUM_ADDED, step->recv_base,
                                        step->recv_begin, at, step->recv_end);
        limit = min(limit, ready);
        run->starving |= limit == at && have >= sizeof(float);
    }
    size_t used = 0;
    while (at < limit) {
        size_t bytes;
        unsigned char *to = view_at(&flow->view, at, &bytes);
        bytes = min(bytes, limit - at);
        const void *mine = step->recv_own && flow->own != NULL ? flow->own + at : to;
        const void *theirs = flow->scratch + used;
        const float *const both[2] = {step->mine_first ? mine : theirs,
                                      step->mine_first ? theirs : mine};
        sum_arrays((float *)(void *)to, both, 2, 0, bytes / sizeof(float));
        used += bytes;
        at += bytes;
    }
    if (used > 0) {
        memmove(flow->scratch, flow->scratch + used, have - used);
        run->done += used;
        run->moved = true;
    }
}

static int recv_range(struct run *run, const struct schedule_step *step, struct net_link *link,
                      struct ct_err *err)
{
    const struct schedule_run *flow = run->flow;
    size_t come = run->got - sizeof(run->header), size = step->recv_end - step->recv_begin;
    if (come < size) {
        size_t room;
        unsigned char *to;
        if (step->add) {
            room = SCHEDULE_SCRATCH - (come - run->done);
            to = flow->scratch + (come - run->done);
        } else {
            to = view_at(&flow->view, step->recv_begin + come, &room);
        }
        room = min(room, size - come);
        ssize_t n = room > 0 ? recv(link->fd, to, room, MSG_DONTWAIT) : 1;
        if (n <= 0) {
            int rc = failed(run, link, n, err);
            if (rc != 0 || !step->add) {
                return rc;
            }
        } else if (room > 0) {
            run->got += (size_t)n;
            run->moved = true;
        }
    }
    if (step->add) {
        add_scratch(run, step);
    } else {
        run->done = run->got - sizeof(run->header);
    }
    return 0;
}

/* Receives what has arrived. The caller repeats it while anything moves. */
static int pull(struct run *run, struct ct_err *err)
{
    const struct schedule_run *flow = run->flow;
    while (run->receiving < flow->schedule->count) {
        const struct schedule_step *step = &flow->schedule->steps[run->receiving];
        size_t size = step->recv_end - step->recv_begin;
        if (step->from != SCHEDULE_NOBODY && (run->got < sizeof(run->header) || run->done < size)) {
            /* The sum would replace what has not been copied yet. */
            if (step->copy && run->sending <= run->receiving &&
                !(run->sending == run->receiving && run->started)) {
                return 0;
            }
            struct net_link *link = &flow->net->links[step->from];
            int rc = run->got < sizeof(run->header) ? recv_header(run, link, err)
                                                    : recv_range(run, step, link, err);
            if (rc != 0 || run->got < sizeof(run->header) || run->done < size) {
                return rc;
            }
            link->within = false;
        }
        run->receiving++;
        run->got = run->done = 0;
        run->moved = true;
    }
    return 0;
}

/* ---- both directions ------------------------------------------------------------------------- */

int schedule_run(const struct schedule_run *flow, const struct net_header *header,
                 struct ct_err *err)
{
    struct run run = {.flow = flow, .header = *header};
    run.header.magic = NET_MAGIC;
    run.header.number = ++flow->net->number;
    size_t count = flow->schedule->count;
    int64_t deadline = ct_deadline_in(NULL, flow->net->timeout_ms);
    while (run.sending < count || run.receiving < count) {
        bool blocked;
        run.moved = run.starving = false;
        int rc = push(&run, &blocked, err);
        if (rc == 0) {
            rc = pull(&run, err);
        }
        if (rc == 0 && run.moved) {
            deadline = ct_deadline_in(NULL, flow->net->timeout_ms);
            net_moved(flow->net);
            continue;
        }
        if (rc == 0) {
            const struct net_link *links = flow->net->links;
            const struct schedule_step *steps = flow->schedule->steps;
            /* Bytes that have arrived but cannot be added yet would end the wait at once. */
            bool waits = run.receiving < count && steps[run.receiving].from != SCHEDULE_NOBODY &&
                         !run.starving;
            rc = net_wait(flow->net, blocked ? &links[steps[run.sending].to] : NULL,
                          waits ? &links[steps[run.receiving].from] : NULL, run.starving,
                          &run.header, &deadline, err);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
