/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides before a connection is served whether its peer is admitted, by address and user, and
 * which dialect it speaks, because agent control and HTTP are served elsewhere. For conn_uv.c and
 * server_uv.c.
 */
#ifndef CT_RENDEZVOUS_SERVER_CONN_GATE_UV_H
#define CT_RENDEZVOUS_SERVER_CONN_GATE_UV_H

#include "rendezvous/server/conn_uv.h"

/* Admits everyone until its fields are set. */
void ct_conn_gate_init(struct ct_conn_gate *gate);
void ct_conn_gate_fini(struct ct_conn_gate *gate);

/* Gives the peer's address as text; "unknown" if the peer has already gone. */
void ct_conn_gate_peer(const struct ct_conn *conn, char *text, size_t size);

/* Ends the connection, counts it and logs that at a limited rate. */
void ct_conn_gate_refuse(struct ct_conn *conn, struct ct_refusal_log *refusals, const char *why);

/* Refuses a peer that is not admitted. */
void ct_conn_gate_refuse_unadmitted(struct ct_conn *conn);

/* Decides whether the peer is admitted, and puts the connection into the list for that. */
void ct_conn_gate_enroll(struct ct_conn *conn);

/* Has the first byte come, and is it of a dialect that is served elsewhere? Reads nothing. */
bool ct_conn_gate_is_foreign(const struct ct_conn *conn);

/* Is the first byte neither HTTP nor agent control? It must still be in the socket. */
bool ct_conn_gate_is_of_store(int fd);

/* Gives the socket of such a connection to HTTP or to agent control. */
void ct_conn_gate_hand_over(struct ct_conn *conn);

#endif
