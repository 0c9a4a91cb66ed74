/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending half of a connection, for conn_uv.c alone: as much as the socket takes at once, the
 * rest as the loop can.
 */
#ifndef CT_RENDEZVOUS_SERVER_CONN_WRITE_UV_H
#define CT_RENDEZVOUS_SERVER_CONN_WRITE_UV_H

#include "rendezvous/server/conn_uv.h"

/* Is a write in the loop's hands? Nothing more can be sent until ct_conn_resume() is called. */
bool ct_conn_write_busy(const struct ct_conn *conn);

/* Is there something to send? */
bool ct_conn_write_wanted(const struct ct_conn *conn);

/* Sends one slice, at once if `now` and the socket takes it. There must be something to send, and
 * no write be busy. May close the connection. */
void ct_conn_write_slice(struct ct_conn *conn, bool now);

/* Replies that wait for a slow reader count as the store's memory; those that leave at once do not.
 */
void ct_conn_write_charge(struct ct_conn *conn);

/* What is not sent is lost. No write may be busy, or the handle is closed. */
void ct_conn_write_free(struct ct_conn *conn);

#endif
