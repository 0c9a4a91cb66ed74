/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses of one endpoint of etcd that is given by name. A thread of its own asks the
 * system's resolver for them: if a name server is away, that can take half a minute, and no request
 * may wait for so long, nor may the resolver's answer be lost with the request.
 *
 *     a request    takes the addresses that were found last, or waits for the first ones
 *     a failure    has them looked up again, while the old ones are still used
 *     a long time  without an answer from there makes a request wait for new ones, since another
 *                  server may have the old ones by now; if none come, it takes the old ones
 */
#ifndef CT_RENDEZVOUS_ETCD_ETCD_NAME_H
#define CT_RENDEZVOUS_ETCD_ETCD_NAME_H

#include "common/addr.h"

/* More than any cluster has for one member. */
#define CT_ETCD_ADDRESSES_MAX 16
/* "HOST:PORT:ADDRESS,ADDRESS", with brackets around each. */
#define CT_ETCD_NAME_MAX (CT_ADDR_JOIN_MAX + CT_ETCD_ADDRESSES_MAX * CT_ADDR_TEXT_MAX)

struct ct_etcd_name;

/* Begins to look it up. CT_ENOMEM, CT_EIO. */
CT_MUST_CHECK int ct_etcd_name_open(const char *host, uint16_t port, struct ct_etcd_name **out,
                                    struct ct_err *err);

/* Gives what CURLOPT_RESOLVE takes. If no address is known yet, waits for one until `deadline_ns`
 * (CT_ETIMEDOUT) or until `wake_fd` is readable (CT_EABORTED). CT_EIO: the resolver knows none.
 */
CT_MUST_CHECK int ct_etcd_name_get(struct ct_etcd_name *name, int64_t deadline_ns, int wake_fd,
                                   char out[CT_ETCD_NAME_MAX], struct ct_err *err);

/* Etcd has answered at one of these addresses. */
void ct_etcd_name_answered(struct ct_etcd_name *name);

/* Nobody has answered at these addresses, so they are looked up again, but not more often than once
 * in a second. */
void ct_etcd_name_renew(struct ct_etcd_name *name);

/* Does not wait for a lookup: the one that runs frees the name when it ends. NULL is allowed. */
void ct_etcd_name_close(struct ct_etcd_name *name);

#endif
