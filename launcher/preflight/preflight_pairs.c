/* SPDX-License-Identifier: Apache-2.0
 *
 * The circle method: one machine stands still and the others move round it. With an odd number of
 * machines, the partner of the one that stands still pauses.
 */
#include "launcher/preflight/preflight_pairs.h"

static int seats(int machines)
{
    return machines + machines % 2;
}

static int all_rounds(int machines)
{
    return machines < 2 ? 0 : seats(machines) - 1;
}

int ct_preflight_rounds(int machines)
{
    int all = all_rounds(machines);
    return all < CT_PREFLIGHT_ROUNDS_MAX ? all : CT_PREFLIGHT_ROUNDS_MAX;
}

bool ct_preflight_all_meet(int machines)
{
    return all_rounds(machines) <= CT_PREFLIGHT_ROUNDS_MAX;
}

int ct_preflight_partner(int machines, int round, int machine)
{
    int circle = all_rounds(machines), still = circle;
    if (circle == 0) {
        return -1;
    }
    long long turn = (long long)round * circle / ct_preflight_rounds(machines);
    int partner;
    if (machine == still) {
        /* The one that would meet itself: twice its number is `turn`, in whole circles. */
        partner = (int)(turn * (seats(machines) / 2) % circle);
    } else {
        partner = (int)((turn + circle - machine) % circle);
        partner = partner == machine ? still : partner;
    }
    return partner < machines ? partner : -1;
}
