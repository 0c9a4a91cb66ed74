/* SPDX-License-Identifier: Apache-2.0
 *
 * Who comes in, and to whom: admission by address and user, and the dialects that others serve. For
 * conn_uv.c alone, but for ct_conn_is_of_store().
 */
#ifndef CT_RENDEZVOUS_SERVER_CONN_GATE_UV_H
#define CT_RENDEZVOUS_SERVER_CONN_GATE_UV_H

#include "rendezvous/server/conn_uv.h"

/* "unknown" when the peer is gone already. */
void ct_conn_peer(const struct ct_conn *conn, char *text, size_t size);

/* Ends the connection, counts it and says so at a limited rate. */
void ct_conn_refuse(struct ct_conn *conn, struct ct_refusal_log *refusals, const char *why);

/* It is not admitted, and what it says is not for everybody. */
void ct_conn_refuse_stranger(struct ct_conn *conn);

/* Puts a new connection into the list where it belongs. */
void ct_conn_enroll(struct ct_conn *conn);

/* Is its first byte there, and that of a dialect that somebody else serves? Reads nothing. */
bool ct_conn_is_foreign(const struct ct_conn *conn);

/* Gives the socket of such a connection to who serves it. */
void ct_conn_hand_over(struct ct_conn *conn);

#endif
