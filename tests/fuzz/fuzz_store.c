/* SPDX-License-Identifier: Apache-2.0
 *
 * Several clients of one store at a time: waits, barriers and queues wake across them, clients
 * leave in the middle of it, and the memory may be capped.
 *
 * Input: one byte of cap (0 = none, else so many times 64 bytes), then for each step one byte (bits
 * 0-1: which client; bits 2-7: how many bytes follow for it, 0 = it leaves and a new one comes in
 * its place). New clients have greeted, but for the fourth, which speaks the legacy dialect.
 *
 * The oracle, besides the sanitizers: the store's own assertion at its end that all memory was
 * given back, that nobody is left waiting or watching, and that who is woken misses nothing more.
 */
#include "rendezvous/store/session.h"

#include "common/err.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define CLIENTS 4
#define LEGACY_CLIENT 3

struct client {
    struct ct_session session;
    bool open;
};

struct world {
    struct ct_store *store;
    struct ct_service service;
    struct client clients[CLIENTS];
};

static void on_woken(struct ct_session *session)
{
    CT_ASSERT(!session->woken || session->waiter.missing == 0);
}

static void drain(struct ct_session *session)
{
    while (session->out.total > 0) {
        struct iovec iov[4];
        size_t n = ct_outq_iov(&session->out, iov, 4), len = 0;
        CT_ASSERT(n > 0);
        for (size_t i = 0; i < n; i++) {
            len += iov[i].iov_len;
        }
        ct_outq_consume(&session->out, len);
    }
}

static void leave(struct client *client)
{
    ct_session_fini(&client->session);
    client->open = false;
}

static void feed(struct client *client, const void *bytes, size_t len)
{
    struct ct_err err = {0};
    int rc = ct_session_feed(&client->session, bytes, len, &err);
    while (rc > 0) {
        drain(&client->session);
        client->session.service->turn_bytes = 0;
        rc = ct_session_feed(&client->session, NULL, 0, &err);
    }
    drain(&client->session);
    CT_ASSERT(rc <= 0);
    CT_ASSERT((rc < 0) == (err.text[0] != '\0'));
    if (rc < 0) {
        leave(client);
    }
}

/* What the others did to it; it reads only when it sends. */
static void settle(struct client *client)
{
    if (client->open && ct_session_answer_wait(&client->session) != 0) {
        leave(client);
    }
}

static void come(struct world *world, size_t which)
{
    static const unsigned char hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    struct client *client = &world->clients[which];
    ct_session_init(&client->session, &world->service);
    client->open = true;
    if (which != LEGACY_CLIENT) {
        feed(client, hello, sizeof(hello));
    }
}

static void step(struct world *world, const uint8_t **data, size_t *size)
{
    size_t which = **data & 3, len = **data >> 2;
    struct client *client = &world->clients[which];
    ++*data;
    --*size;
    if (len == 0 && client->open) {
        leave(client);
    }
    if (!client->open) {
        come(world, which);
    }
    len = len < *size ? len : *size;
    if (len > 0 && client->open) {
        feed(client, *data, len);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        settle(&world->clients[i]);
    }
    *data += len;
    *size -= len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct world world = {0};
    CT_ASSERT(ct_store_new(&world.store) == 0);
    if (data[0] > 0) {
        ct_store_budget(world.store)->max = (size_t)data[0] * 64;
    }
    data++;
    size--;
    world.service = (struct ct_service){.store = world.store, .on_woken = on_woken};
    while (size > 0) {
        step(&world, &data, &size);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        leave(&world.clients[i]);
    }
    CT_ASSERT(ct_store_num_waiters(world.store) == 0);
    ct_store_free(world.store);
    return 0;
}
