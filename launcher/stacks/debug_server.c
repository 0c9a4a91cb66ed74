/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: connect to the store and ask for the key of each rank. Few programs have such a
 * server, so a key is read only if it is there; a check is answered at once.
 *
 * Failure modes: a store that is gone or silent, and values that are no address, leave the targets
 * as they are.
 */
#include "launcher/stacks/debug_server.h"

#include "common/clock.h"
#include "common/num.h"
#include "rendezvous/client/client.h"

#include <stdio.h>
#include <string.h>

/* Takes the port out of "http://HOST:PORT"; 0 = there is none. */
static uint16_t port_of(const char *address)
{
    const char *colon = strrchr(address, ':');
    int port = 0;
    bool valid = strncmp(address, "http://", 7) == 0 && colon != NULL &&
                 ct_parse_int(colon + 1, 1, UINT16_MAX, &port) == 0;
    return valid ? (uint16_t)port : 0;
}

/* Asks for one rank. Returns an error if no further rank need be asked for. */
static int find_one(struct ct_client *client, int rank, int timeout_ms, uint16_t *port)
{
    char key[48];
    bool there;
    struct ct_buf value = CT_BUF_INIT;
    (void)snprintf(key, sizeof(key), "debug_server/rank%d", rank);
    int rc = ct_client_check(client, key, &there, NULL);
    if (rc != 0 || !there) {
        return rc;
    }
    rc = ct_client_get(client, key, timeout_ms, &value, NULL);
    const char *address = rc == 0 ? ct_buf_cstr(&value) : NULL;
    if (address != NULL) {
        *port = port_of(address);
    } else if (rc == 0) {
        rc = CT_ENOMEM;
    }
    ct_buf_fini(&value);
    return rc;
}

void ct_debug_servers_find(const struct ct_debug_store *store, int64_t deadline_ns,
                           struct ct_probe_target *targets, int count)
{
    struct ct_client *client;
    int timeout_ms = ct_deadline_left_ms(NULL, deadline_ns);
    if (store->host == NULL ||
        ct_client_open(store->host, store->port, timeout_ms, &client, NULL) != 0) {
        return;
    }
    for (int i = 0; i < count && ct_deadline_left_ms(NULL, deadline_ns) > 0; i++) {
        if (targets[i].pid > 0 &&
            find_one(client, store->first_rank + i, timeout_ms, &targets[i].port) != 0) {
            break;
        }
    }
    ct_client_free(client);
}
