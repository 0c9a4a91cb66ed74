/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock of a probe counts wakes, so it tells their order.
 */
#include "tests/lib/store_probe.h"

#include "common/buf.h"

int ct_probe_set_up(void **state)
{
    struct ct_store *store = NULL;
    assert_int_equal(ct_store_new(&store), 0);
    *state = store;
    return 0;
}

int ct_probe_tear_down(void **state)
{
    ct_store_free(*state);
    return 0;
}

struct ct_bytes b(const char *text)
{
    return (struct ct_bytes){(const unsigned char *)text, strlen(text)};
}

void set(struct ct_store *store, const char *key, const char *value)
{
    assert_int_equal(ct_store_set(store, b(key), b(value)), 0);
}

static void on_wake(struct ct_waiter *waiter)
{
    struct probe *probe = CT_CONTAINER_OF(waiter, struct probe, waiter);
    assert_int_equal(probe->woken, 0);
    assert_int_equal(waiter->missing, 0);
    probe->woken = ++*probe->clock;
}

void probe_init(struct probe *probe, int *clock)
{
    *probe = (struct probe){.waiter.wake = on_wake, .clock = clock};
}

int wait_for(struct ct_store *store, struct probe *probe, const char *list)
{
    struct ct_buf buf = CT_BUF_INIT;
    size_t count = 0;
    for (const char *p = list; *p != '\0'; count++) {
        size_t len = strcspn(p, " ");
        assert_int_equal(ct_put_bytes(&buf, p, len), 0);
        p += len + (p[len] == ' ');
    }
    struct ct_bytes keys = {ct_buf_bytes(&buf), buf.len};
    int rc = ct_store_wait(store, &probe->waiter, keys, count, false);
    ct_buf_fini(&buf);
    return rc;
}
