/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the way between two machines by real transfers, which are bounded in bytes and time.
 *
 * The machine with the higher index connects twice. Over the first connection it sends small
 * messages that come back, and then as much as it can; over the second one it gets as much as
 * comes.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_NET_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_NET_H

#include "launcher/preflight/preflight.h"

/* Within this time a pair is measured, or it does not work. A pair that works takes a second at
 * most, but the machines may be busy with something else. */
#define CT_PREFLIGHT_PAIR_MS 6000

/* By which the machines of a job know each other. */
#define CT_PREFLIGHT_SECRET 16

/* Everything is borrowed. */
struct ct_preflight_meeting {
    int listener; /* of this machine */
    const unsigned char *secret;
    int round;
    int machine, partner; /* indices */
    const char *address;  /* of the partner */
    uint16_t port;
};

/* Listens on all addresses and a free port. Gives *listener, to be closed, and *port. */
CT_MUST_CHECK int ct_preflight_listen(int *listener, uint16_t *port, struct ct_err *err);

/* Both machines have to call it at about the same time. What goes wrong is in link->error. */
void ct_preflight_measure(const struct ct_preflight_meeting *meeting,
                          struct ct_preflight_link *link);

#endif
