/* SPDX-License-Identifier: Apache-2.0
 *
 * The value of a job's arbiter (rendezvous/election/arbiter.h) as JSON, as it is kept in etcd:
 *
 *     {"promised":4294967303,"promised_to":7,"host_term":4294967303,"ended":false,
 *      "host":{"id":7,"address":"10.0.0.1","port":4711},"record":{...}}
 *
 * Without "host" it hears none, and without "record" it has pledged none. Whoever may write to etcd
 * can have written it, so it is checked like a control frame.
 */
#ifndef CT_RENDEZVOUS_ETCD_ARBITER_JSON_H
#define CT_RENDEZVOUS_ETCD_ARBITER_JSON_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/election/arbiter.h"

#include <stddef.h>

/* Appends the text. CT_ENOMEM. */
CT_MUST_CHECK int ct_arbiter_json_write(const struct ct_arbiter_state *state, struct ct_buf *out);

/* CT_EFORMAT names what is wrong; also when memory is out, since the parser does not tell. *out is
 * undefined after a failure. */
CT_MUST_CHECK int ct_arbiter_json_read(const char *text, size_t len, struct ct_arbiter_state *out,
                                       struct ct_err *err);

#endif
