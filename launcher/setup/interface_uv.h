/* SPDX-License-Identifier: Apache-2.0
 *
 * ct_interface_look() in a thread of its own, since the name service may take seconds where it does
 * not work, and nobody may wait for it at the end: neither a start beyond a bound, nor the exit.
 */
#ifndef CT_LAUNCHER_SETUP_INTERFACE_UV_H
#define CT_LAUNCHER_SETUP_INTERFACE_UV_H

#include "launcher/setup/interface.h"

#include <uv.h>

/* How long a start may be held up. A name that takes longer is as good as none: gloo would ask for
 * it as long. */
#define CT_INTERFACE_LOOK_MS 1000

/* Zeroed memory has not been started. */
struct ct_interface_search {
    struct ct_interface_facts facts; /* those of a name that means nothing, until it is done */
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;       /* the thread's answer */
    bool pending; /* the handles are open */
    void (*on_done)(void *data);
    void *data;
};

/* Starts it; on_done comes from the loop, once, but not after a stop and not when there is no
 * thread or memory to be had: then `pending` is false, and the facts are those of a name that means
 * nothing. `local_addr` is copied, `env` must stay for the life of the process. */
void ct_interface_search_start(struct ct_interface_search *search, uv_loop_t *loop,
                               const char *name, const char *local_addr, char *const *env,
                               void (*on_done)(void *data), void *data);

/* Also where it was not started. */
void ct_interface_search_stop(struct ct_interface_search *search);

#endif
