/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: an agent joins, and its port is tried once. The agent is lost; its port is tried
 * until it is refused, and on_dead() is called.
 *
 * Other paths: an agent that is lost may still listen, because its process is just ending or only
 * the network was cut. So the port is tried again each PAUSE_MS, TRIES times. A machine that does
 * not answer is waited for as long as all tries together take.
 *
 * Failure modes: any other error than a refusal proves nothing. An agent whose port cannot be
 * tried, because its address is not numeric or memory is out, is forgotten: its lease runs out
 * instead.
 *
 * Who frees: each try has a handle of its own, which frees itself when it is closed. The object is
 * freed when the timer and all tries are closed.
 */
#include "rendezvous/server/death_probe_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "common/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* A process that was killed is gone within milliseconds; one that the host has given up for another
 * reason matters only until its lease is over. */
#define PAUSE_MS 50
#define TRIES 100
#define SLOTS CT_VOTERS_BOTH

struct attempt {
    uv_tcp_t tcp;
    uv_connect_t connect;
    struct ct_probes *probes;
    uint64_t id;
};

struct slot {
    struct ct_voter voter; /* id 0 = the slot is free */
    bool reached;          /* its port has taken a connection */
    bool lost;
    int tries;           /* that are left */
    struct attempt *now; /* under way; NULL = none */
};

struct ct_probes {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct slot slots[SLOTS];
    void (*on_dead)(void *data, uint64_t id);
    void *data;
    size_t handles; /* not closed yet */
    bool closing;
    void (*close_cb)(void *data);
    void *close_data;
};

/* ---- closing -------------------------------------------------------------------------------- */

static void finish_if_last(struct ct_probes *probes)
{
    if (!probes->closing || probes->handles > 0) {
        return;
    }
    void (*cb)(void *data) = probes->close_cb;
    void *data = probes->close_data;
    ct_free(probes);
    if (cb != NULL) {
        cb(data);
    }
}

static void on_try_closed(uv_handle_t *handle)
{
    struct attempt *attempt = CT_CONTAINER_OF(handle, struct attempt, tcp);
    struct ct_probes *probes = attempt->probes;
    ct_free(attempt);
    probes->handles--;
    finish_if_last(probes);
}

static void stop_try(struct slot *slot)
{
    if (slot->now != NULL) {
        uv_close((uv_handle_t *)&slot->now->tcp, on_try_closed);
        slot->now = NULL;
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_probes *probes = CT_CONTAINER_OF(handle, struct ct_probes, timer);
    probes->handles--;
    finish_if_last(probes);
}

void ct_probes_close(struct ct_probes *probes, void (*cb)(void *data), void *data)
{
    if (probes == NULL) {
        if (cb != NULL) {
            cb(data);
        }
        return;
    }
    probes->closing = true;
    probes->close_cb = cb;
    probes->close_data = data;
    for (int i = 0; i < SLOTS; i++) {
        stop_try(&probes->slots[i]);
    }
    uv_close((uv_handle_t *)&probes->timer, on_timer_closed);
}

/* ---- trying --------------------------------------------------------------------------------- */

static struct slot *slot_of(struct ct_probes *probes, uint64_t id)
{
    for (int i = 0; i < SLOTS; i++) {
        if (probes->slots[i].voter.id == id) {
            return &probes->slots[i];
        }
    }
    return NULL;
}

static void forget(struct slot *slot)
{
    stop_try(slot);
    *slot = (struct slot){.tries = 0};
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct attempt *attempt = CT_CONTAINER_OF(connect, struct attempt, connect);
    struct ct_probes *probes = attempt->probes;
    uint64_t id = attempt->id;
    struct slot *slot = slot_of(probes, id);
    if (slot == NULL || slot->now != attempt) {
        return; /* it is being closed */
    }
    stop_try(slot);
    slot->reached = slot->reached || status == 0;
    if (slot->lost && slot->reached && status == UV_ECONNREFUSED) {
        forget(slot);
        probes->on_dead(probes->data, id);
    } else if (slot->lost && slot->tries == 0) {
        forget(slot);
    }
}

static void begin_try(struct ct_probes *probes, struct slot *slot)
{
    struct sockaddr_storage addr;
    socklen_t len;
    struct attempt *attempt = ct_calloc(1, sizeof(*attempt));
    if (attempt == NULL || !ct_addr_literal(slot->voter.address, slot->voter.port, &addr, &len)) {
        ct_free(attempt);
        forget(slot);
        return;
    }
    CT_ASSERT(uv_tcp_init(probes->loop, &attempt->tcp) == 0); /* no socket is made yet */
    probes->handles++;
    attempt->probes = probes;
    attempt->id = slot->voter.id;
    slot->now = attempt;
    slot->tries--;
    if (uv_tcp_connect(&attempt->connect, &attempt->tcp, (const struct sockaddr *)&addr,
                       on_connected) != 0) {
        stop_try(slot);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_probes *probes = CT_CONTAINER_OF(timer, struct ct_probes, timer);
    bool any = false;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &probes->slots[i];
        if (slot->voter.id == 0 || !slot->lost) {
            continue;
        }
        if (slot->tries <= 0) {
            forget(slot);
            continue;
        }
        any = true;
        if (slot->now == NULL) {
            begin_try(probes, slot);
        } else {
            slot->tries--;
        }
    }
    if (!any) {
        (void)uv_timer_stop(timer);
    }
}

static struct slot *take_slot(struct ct_probes *probes, const struct ct_voter *voter)
{
    struct slot *slot = slot_of(probes, voter->id);
    slot = slot != NULL ? slot : slot_of(probes, 0);
    if (slot != NULL &&
        (slot->voter.port != voter->port || strcmp(slot->voter.address, voter->address) != 0)) {
        stop_try(slot);
        slot->reached = false; /* at the former place another one may listen, or refuse */
    }
    if (slot != NULL) {
        slot->voter = *voter;
    }
    return slot;
}

void ct_probes_joined(struct ct_probes *probes, const struct ct_voter *voter)
{
    struct slot *slot = voter->id != 0 && !probes->closing ? take_slot(probes, voter) : NULL;
    if (slot == NULL) {
        return;
    }
    stop_try(slot);
    slot->lost = false;
    slot->tries = 1;
    begin_try(probes, slot);
}

static void begin_probing(struct ct_probes *probes, struct slot *slot)
{
    slot->lost = true;
    slot->tries = TRIES;
    if (slot->now == NULL) {
        begin_try(probes, slot);
    }
    (void)uv_timer_start(&probes->timer, on_timer, PAUSE_MS, PAUSE_MS);
}

void ct_probes_lost(struct ct_probes *probes, const struct ct_voter *voter)
{
    struct slot *slot = voter->id != 0 && !probes->closing ? take_slot(probes, voter) : NULL;
    if (slot != NULL) {
        slot->reached = true;
        begin_probing(probes, slot);
    }
}

void ct_probes_left(struct ct_probes *probes, uint64_t id)
{
    struct slot *slot = id != 0 && !probes->closing ? slot_of(probes, id) : NULL;
    if (slot != NULL) {
        begin_probing(probes, slot);
    }
}

void ct_probes_forget(struct ct_probes *probes, uint64_t id)
{
    struct slot *slot = id != 0 && !probes->closing ? slot_of(probes, id) : NULL;
    if (slot != NULL) {
        forget(slot);
    }
}

int ct_probes_open(uv_loop_t *loop, void (*on_dead)(void *data, uint64_t id), void *data,
                   struct ct_probes **out)
{
    struct ct_probes *probes = ct_calloc(1, sizeof(*probes));
    if (probes == NULL) {
        return CT_ENOMEM;
    }
    probes->loop = loop;
    probes->on_dead = on_dead;
    probes->data = data;
    CT_ASSERT(uv_timer_init(loop, &probes->timer) == 0); /* cannot fail */
    probes->handles = 1;
    *out = probes;
    return 0;
}
