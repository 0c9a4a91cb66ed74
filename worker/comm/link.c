/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a link: they check arguments, say on the progress page that this rank waits,
 * and call the back end. After a failure every later call fails with the same code.
 */
#include "worker/comm/link.h"

/* ---- failure and end ------------------------------------------------------------------------- */

static int keep_failure(struct ctw_link *link, int rc, const char *what, struct ct_err *err)
{
    if (rc != 0) {
        link->dead = rc;
        (void)ct_err_wrap(&link->reason, "%s rank %d", what, link->peer);
        link->ops->abort(link);
        if (err != NULL) {
            *err = link->reason;
        }
    }
    return rc;
}

static int refuse_dead(const struct ctw_link *link, struct ct_err *err)
{
    return ct_err_set(err, link->dead, "the link has ended: %s", link->reason.text);
}

void ctw_link_abort(struct ctw_link *link)
{
    if (link != NULL && link->dead == 0) {
        int rc = ct_err_set(&link->reason, CT_EABORTED, "called here");
        (void)keep_failure(link, rc, "abort of the link to", NULL);
    }
}

void ctw_link_free(struct ctw_link *link)
{
    if (link != NULL) {
        link->ops->close(link);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static int check_buffer(struct ctw_link *link, const void *buf, size_t bytes)
{
    return buf != NULL || bytes == 0 ? 0
                                     : ct_err_set(&link->reason, CT_EINVAL, "the buffer is NULL");
}

int ctw_link_send(struct ctw_link *link, const void *buf, size_t bytes, int tag, struct ct_err *err)
{
    if (link->dead != 0) {
        return refuse_dead(link, err);
    }
    int rc = check_buffer(link, buf, bytes);
    if (rc == 0) {
        uint64_t before = progress_begin_wait(link->progress);
        rc = link->ops->send(link, buf, bytes, tag, &link->reason);
        progress_end_wait(link->progress, before);
    }
    return keep_failure(link, rc, "send to", err);
}

int ctw_link_recv(struct ctw_link *link, void *buf, size_t bytes, int tag, struct ct_err *err)
{
    if (link->dead != 0) {
        return refuse_dead(link, err);
    }
    int rc = check_buffer(link, buf, bytes);
    if (rc == 0) {
        uint64_t before = progress_begin_wait(link->progress);
        rc = link->ops->recv(link, buf, bytes, tag, &link->reason);
        progress_end_wait(link->progress, before);
    }
    return keep_failure(link, rc, "receive from", err);
}

/* ---- for back ends --------------------------------------------------------------------------- */

size_t link_ring_size(size_t buffer, size_t head)
{
    size_t size = LINK_RING_MIN;
    while (size < buffer + head) {
        size *= 2;
    }
    return size;
}

int link_check_message(uint64_t bytes, int64_t tag, size_t want_bytes, int want_tag,
                       struct ct_err *err)
{
    if (bytes != want_bytes || tag != want_tag) {
        return ct_err_set(err, CT_EPROTO,
                          "%llu bytes with tag %lld came, %zu with tag %d were expected",
                          (unsigned long long)bytes, (long long)tag, want_bytes, want_tag);
    }
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check(const struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                 struct ct_err *err)
{
    if (out == NULL || peer < 0 || peer >= comm->size || peer == comm->rank) {
        return ct_err_set(err, CT_EINVAL, "rank %d has no link to rank %d of %d", comm->rank, peer,
                          comm->size);
    }
    if (buffer > CTW_LINK_BUFFER_MAX) {
        return ct_err_set(err, CT_ELIMIT, "messages of %zu bytes are too long to buffer", buffer);
    }
    if (comm->ops->link == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "this communicator has no links");
    }
    return 0;
}

int ctw_link_open(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                  struct ct_err *err)
{
    int rc = comm != NULL ? check(comm, peer, buffer, out, err)
                          : ct_err_set(err, CT_EINVAL, "ctw_link_open: no communicator");
    if (rc != 0) {
        return rc;
    }
    struct ctw_link *link;
    uint64_t before = progress_begin_wait(comm->progress);
    rc = comm->ops->link(comm, peer, buffer, &link, err);
    progress_end_wait(comm->progress, before);
    if (rc != 0) {
        (void)ct_err_wrap(err, "rank %d cannot open a link to rank %d", comm->rank, peer);
        return rc;
    }
    link->peer = peer;
    link->progress = comm->progress;
    *out = link;
    return 0;
}
