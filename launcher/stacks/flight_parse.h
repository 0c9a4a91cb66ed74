/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what PyTorch's flight recorder has kept of the collectives of a rank: the JSON of the
 * handler fr_trace_json, version 2 of its form. A recording may hold anything, because a worker
 * writes it.
 */
#ifndef CT_LAUNCHER_STACKS_FLIGHT_PARSE_H
#define CT_LAUNCHER_STACKS_FLIGHT_PARSE_H

#include "rendezvous/control/flight.h"

/* Of one rank: the last collectives of all its back ends. Older ones are of no use for a hang. */
#define CT_FLIGHT_OPS_MAX 256
/* Of one back end. */
#define CT_FLIGHT_OPS_TAKEN 128
#define CT_FLIGHT_GROUPS_MAX 64

/* Adds a recording to *out, which ct_flight_fini() frees also after an error. PyTorch has one for
 * each of its back ends. CT_EFORMAT, CT_ENOMEM. */
CT_MUST_CHECK int ct_flight_parse(const char *json, size_t len, struct ct_flight *out);

#endif
