/* SPDX-License-Identifier: Apache-2.0
 *
 * Who measures with whom: a tournament of rounds, in each of which every machine has one partner at
 * most. All rounds of a job of N machines are N - 1, or N if N is odd; then every pair meets once.
 * A job of many machines plays CT_PREFLIGHT_ROUNDS_MAX of them, spread over the whole tournament.
 * Pure.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_PAIRS_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_PAIRS_H

#include <stdbool.h>

/* A round takes half a second, and a machine that is slow shows with any partner. */
#define CT_PREFLIGHT_ROUNDS_MAX 16

/* The rounds that are played by so many machines. */
int ct_preflight_rounds(int machines);

/* Does every pair meet? */
bool ct_preflight_all_meet(int machines);

/* Returns the partner of this machine in a round, or -1 if it has none. */
int ct_preflight_partner(int machines, int round, int machine);

#endif
