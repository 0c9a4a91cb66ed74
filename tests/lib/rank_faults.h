/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation faults in what two ranks do together: fault.h for calls that need a peer.
 */
#ifndef CT_TESTS_LIB_RANK_FAULTS_H
#define CT_TESTS_LIB_RANK_FAULTS_H

#include "common/err.h"
#include "tests/lib/ranks.h"

/* What each of the two does, from opening its job to freeing it. Returns 0 or the code of what
 * failed. */
typedef int (*rank_fault_fn)(int rank, struct ct_err *err);

/* Runs fn in two new processes with the first allocation of rank `victim` failing, then the second,
 * and so on, until it runs through. Fails the test unless each fault makes fn return CT_ENOMEM with
 * nothing leaked. Returns how many faults were injected. */
int rank_fault_sweep(int victim, rank_fault_fn fn);

#endif
