/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: resolve (a literal needs no thread), connect, hand over to the proof.
 *
 * Failure modes: every failure is followed by another try after a pause, until the time is over or
 * it is clear that a stranger's server answers there.
 */
#include "rendezvous/client/link_impl_uv.h"

#include "common/addr.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/wire/port_holder.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* The first pause between two tries; each next is twice as long, up to the last. */
#define RETRY_FIRST_MS 20
#define RETRY_MAX_MS 1000

/* How long to go on when something there accepts and closes again without an answer. */
#define STRANGER_MS 3000

/* A firewall that drops packets gives no answer, and the kernel asks again less and less often: a
 * new try finds sooner that it was opened. */
#define TRY_MS 5000

/* From when on, and how often, it is said that there is no way through: as of missing nodes. */
#define TELL_AFTER_MS 5000
#define TELL_EVERY_MS 30000
/* A name that is not known is mistyped, more often than it comes later (a pod's does): it is said
 * at once. */
#define TELL_NAME_EVERY_MS 15000

#define HOLDER_MAX 160

static void on_retry_timer(uv_timer_t *timer)
{
    ct_link_dial(CT_CONTAINER_OF(timer, struct ct_link, timer));
}

/* Whoever mistyped the address learns it long before the time is over. */
static void tell(struct ct_link *link, int64_t left_ms)
{
    bool first = link->told_ns == 0, unknown = link->last.code == CT_ENOENT;
    int64_t since_ns = first ? link->begun_ns : link->told_ns;
    int64_t again_ms = unknown ? TELL_NAME_EVERY_MS : TELL_EVERY_MS;
    int64_t first_ms = unknown ? 0 : TELL_AFTER_MS;
    if (ct_link_elapsed_ms(since_ns) < (first ? first_ms : again_ms)) {
        return;
    }
    link->told_ns = ct_clock_now(NULL);
    if (unknown) {
        ct_log(link->options.log, CT_LOG_WARNING,
               "the name of the job's store, %s, cannot be resolved so far: %s; trying on for "
               "%" PRId64 " s",
               link->host, link->last.text, left_ms / 1000);
    } else {
        ct_log(link->options.log, CT_LOG_WARNING,
               "cannot reach the job's store at %s:%d so far: %s; trying on for %" PRId64 " s",
               link->host, link->options.port, link->last.text, left_ms / 1000);
    }
}

/* The try failed; `link->last` says why. */
static void retry(struct ct_link *link)
{
    ct_link_hang_up(link);
    if (link->closing || link->state == CT_LINK_LOST) {
        return;
    }
    int64_t left_ms = link->options.connect_ms - ct_link_elapsed_ms(link->begun_ns);
    bool stranger = link->stranger_ns != 0 && ct_link_elapsed_ms(link->stranger_ns) >= STRANGER_MS;
    link->retry_ms = link->retry_ms > 0 ? link->retry_ms : RETRY_FIRST_MS;
    /* A try without time left would only hide the reason. */
    if (left_ms <= (int64_t)link->retry_ms || stranger) {
        struct ct_err err = link->last;
        if (stranger) {
            (void)ct_err_set(&err, CT_EPROTO,
                             "%s:%d answers and hangs up: it is no store of ctrun, or does not "
                             "admit this machine",
                             link->host, link->options.port);
        } else {
            (void)ct_err_wrap(&err, "cannot reach the job's store at %s:%d", link->host,
                              link->options.port);
        }
        ct_link_lose(link, &err);
        return;
    }
    tell(link, left_ms);
    link->state = CT_LINK_RETRYING;
    uint64_t pause_ms = link->retry_ms;
    link->retry_ms = link->retry_ms * 2 < RETRY_MAX_MS ? link->retry_ms * 2 : RETRY_MAX_MS;
    uv_update_time(link->loop);
    (void)uv_timer_start(&link->timer, on_retry_timer, pause_ms, 0);
}

void ct_link_fail_try(struct ct_link *link, int code, const char *why)
{
    (void)ct_err_set(&link->last, code, "%s", why);
    retry(link);
}

/* ---- connecting ----------------------------------------------------------------------------- */

static void note_own_address(struct ct_link *link)
{
    struct sockaddr_storage addr = {0};
    int len = sizeof(addr);
    (void)uv_tcp_getsockname(&link->attempt->line.handle.tcp, (struct sockaddr *)&addr, &len);
    ct_addr_host((const struct sockaddr *)&addr, link->own_address, sizeof(link->own_address));
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct ct_link_try *attempt = CT_CONTAINER_OF(connect, struct ct_link_try, connect);
    struct ct_link *link = attempt->link;
    if (link->closing || link->attempt != attempt) {
        return;
    }
    if (status != 0) {
        ct_link_fail_try(link, CT_EIO, uv_strerror(status));
        return;
    }
    link->state = CT_LINK_PROVING;
    (void)uv_tcp_nodelay(&attempt->line.handle.tcp, 1);
    note_own_address(link);
    if (ct_line_start(&attempt->line, CT_CONTROL_MAX_GREETING) != 0) {
        ct_link_fail_try(link, CT_EIO, "cannot read from the connection");
        return;
    }
    ct_link_prove(link);
}

/* It took the connection, but says nothing: mostly another program's port. */
static void fail_silent(struct ct_link *link)
{
    struct sockaddr_storage addr = {0};
    int len = sizeof(addr);
    char there[CT_ADDR_TEXT_MAX], holder[HOLDER_MAX] = "", why[HOLDER_MAX + 64];
    (void)uv_tcp_getpeername(&link->attempt->line.handle.tcp, (struct sockaddr *)&addr, &len);
    ct_addr_host((const struct sockaddr *)&addr, there, sizeof(there));
    if (strcmp(there, link->own_address) == 0) { /* on this machine */
        ct_port_holder(link->options.port, holder, sizeof(holder));
    }
    (void)snprintf(why, sizeof(why), "%s takes connections, but does not answer as a store does",
                   holder[0] != '\0' ? holder : "something there");
    ct_link_fail_try(link, CT_ETIMEDOUT, why);
}

static void on_connect_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    if (link->state == CT_LINK_PROVING) {
        fail_silent(link);
    } else {
        ct_link_fail_try(link, CT_ETIMEDOUT, "no answer");
    }
}

static void connect_to(struct ct_link *link, const struct sockaddr *addr)
{
    if (ct_link_try_new(link, -1, &link->attempt) != 0) {
        ct_link_fail_try(link, CT_ENOMEM, "out of memory");
        return;
    }
    link->state = CT_LINK_CONNECTING;
    int rc = uv_tcp_connect(&link->attempt->connect, &link->attempt->line.handle.tcp, addr,
                            on_connected);
    if (rc != 0) {
        ct_link_fail_try(link, CT_EIO, uv_strerror(rc));
        return;
    }
    int64_t left_ms = link->options.connect_ms - ct_link_elapsed_ms(link->begun_ns);
    left_ms = left_ms < 0 ? 0 : left_ms > TRY_MS ? TRY_MS : left_ms;
    uv_update_time(link->loop);
    (void)uv_timer_start(&link->timer, on_connect_timer, (uint64_t)left_ms, 0);
}

static void on_resolved(uv_getaddrinfo_t *resolver, int status, struct addrinfo *found)
{
    struct ct_link *link = CT_CONTAINER_OF(resolver, struct ct_link, resolver);
    link->resolving = false;
    if (link->closing) {
        ct_link_finish_if_last(link);
    } else if (status != 0) {
        ct_link_fail_try(link, CT_ENOENT, uv_strerror(status));
    } else {
        connect_to(link, found->ai_addr);
    }
    uv_freeaddrinfo(found);
}

void ct_link_dial(struct ct_link *link)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8];
    struct sockaddr_storage addr;
    socklen_t len;
    link->state = CT_LINK_RESOLVING;
    /* A literal needs no thread. */
    if (ct_addr_literal(link->host, link->options.port, &addr, &len)) {
        connect_to(link, (const struct sockaddr *)&addr);
        return;
    }
    (void)snprintf(port, sizeof(port), "%u", (unsigned)link->options.port);
    int rc = uv_getaddrinfo(link->loop, &link->resolver, on_resolved, link->host, port, &hints);
    link->resolving = rc == 0;
    if (rc != 0) {
        ct_link_fail_try(link, CT_EIO, uv_strerror(rc));
    }
}
