/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending half of a connection, for conn_uv.c alone. It sends at once what the socket takes,
 * and lets the loop send the rest.
 */
#ifndef CT_RENDEZVOUS_SERVER_CONN_WRITE_UV_H
#define CT_RENDEZVOUS_SERVER_CONN_WRITE_UV_H

#include "rendezvous/server/conn_uv.h"

/* Is the loop writing? Then nothing more can be sent until ct_conn_resume() is called. */
bool ct_conn_write_busy(const struct ct_conn *conn);

/* Is there something to send? */
bool ct_conn_write_wanted(const struct ct_conn *conn);

/* Sends one slice: at once if `now` and the socket takes it, else through the loop. There must be
 * something to send, and the loop must not be writing. May close the connection. */
void ct_conn_write_slice(struct ct_conn *conn, bool now);

/* Charges the store's budget with replies that wait for a slow reader, not with others. */
void ct_conn_write_charge(struct ct_conn *conn);

/* Frees what was not sent. The loop must not be writing, unless the handle is closed. */
void ct_conn_write_free(struct ct_conn *conn);

#endif
