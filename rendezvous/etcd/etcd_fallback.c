/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces etcd_uv.c in a build without libcurl's header. No client can be opened.
 */
#include "rendezvous/etcd/etcd_uv.h"

int ct_etcd_open(uv_loop_t *loop, const struct ct_etcd_options *options, struct ct_etcd **out,
                 struct ct_err *err)
{
    (void)loop;
    (void)options;
    (void)out;
    return ct_err_set(err, CT_EUNSUPPORTED,
                      "this ctrun was built without etcd: build it where libcurl's header is "
                      "installed (libcurl4-openssl-dev)");
}

int ct_etcd_txn(struct ct_etcd *etcd, const struct ct_etcd_txn *txn, ct_etcd_done done, void *data,
                struct ct_err *err)
{
    (void)txn;
    (void)done;
    (void)data;
    (void)err;
    CT_ASSERT(etcd != NULL);
    return CT_EUNSUPPORTED;
}

int ct_etcd_grant(struct ct_etcd *etcd, int64_t ttl_s, ct_etcd_done done, void *data,
                  struct ct_err *err)
{
    (void)ttl_s;
    (void)done;
    (void)data;
    (void)err;
    CT_ASSERT(etcd != NULL);
    return CT_EUNSUPPORTED;
}

int ct_etcd_keep_alive(struct ct_etcd *etcd, int64_t lease, ct_etcd_done done, void *data,
                       struct ct_err *err)
{
    (void)lease;
    (void)done;
    (void)data;
    (void)err;
    CT_ASSERT(etcd != NULL);
    return CT_EUNSUPPORTED;
}

void ct_etcd_close(struct ct_etcd *etcd)
{
    CT_ASSERT(etcd == NULL);
}
