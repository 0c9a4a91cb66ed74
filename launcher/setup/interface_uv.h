/* SPDX-License-Identifier: Apache-2.0
 *
 * ct_interface_look() in a thread of its own. A name service that does not work takes seconds, and
 * neither the start of a job nor its end may wait that long.
 */
#ifndef CT_LAUNCHER_SETUP_INTERFACE_UV_H
#define CT_LAUNCHER_SETUP_INTERFACE_UV_H

#include "launcher/setup/interface.h"

#include <uv.h>

/* How long the start of workers may wait for the name service. A name that takes longer counts as
 * unknown: gloo would have to wait for it, too. */
#define CT_INTERFACE_LOOK_MS 1000

/* Zeroed memory has not been started. */
struct ct_interface_search {
    struct ct_interface_facts facts; /* until the search is done, those of an unknown name */
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;       /* the thread's answer */
    bool pending; /* the handles are open */
    void (*on_done)(void *data);
    void *data;
};

/* Starts the search. The loop calls on_done once. If there is no thread or memory for the search,
 * or it is stopped, on_done is not called; `pending` is false then, and the facts are those of an
 * unknown name. `local_addr` is copied, `env` must stay for the life of the process. */
void ct_interface_search_start(struct ct_interface_search *search, uv_loop_t *loop,
                               const char *name, const char *local_addr, char *const *env,
                               void (*on_done)(void *data), void *data);

/* May be called for a search that was not started. */
void ct_interface_search_stop(struct ct_interface_search *search);

#endif
