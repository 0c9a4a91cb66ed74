/* SPDX-License-Identifier: Apache-2.0
 *
 * The id of one life of a process in the choice of a host (rendezvous/election/world_voters.h).
 */
#ifndef CT_RENDEZVOUS_ADMISSION_VOTER_ID_H
#define CT_RENDEZVOUS_ADMISSION_VOTER_ID_H

#include "common/err.h"

#include <stdint.h>

/* Gives a random number from 2 to 2^53 - 2, so that JSON keeps it exactly. CT_EIO. */
CT_MUST_CHECK int ct_voter_id_make(uint64_t *out);

#endif
