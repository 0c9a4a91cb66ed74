/* SPDX-License-Identifier: Apache-2.0
 *
 * Viewers of the live page: takes a sample of the status now and then and sends each viewer what
 * has changed, as server-sent events.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_LIVE_UV_H
#define CT_RENDEZVOUS_HTTP_PAGE_LIVE_UV_H

#include "common/err.h"
#include "rendezvous/http/http_answer.h"
#include "rendezvous/http/http_load.h"

#include <uv.h>

struct ct_page_live;

/* What the owner of the connections does for it. */
struct ct_page_live_hooks {
    /* A viewer has taken all that was sent to it, so its connection may go on. */
    void (*on_taken)(void *data, struct MHD_Connection *connection);
    /* The library has connections to serve again. */
    void (*on_resumed)(void *data);
    void *data;
};

/* Gives *out. `source`, `mhd` and `hooks` are borrowed; `mhd` is used from the first viewer on.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_page_live_open(uv_loop_t *loop, const struct ct_http_source *source,
                                    const struct ct_mhd *mhd,
                                    const struct ct_page_live_hooks *hooks,
                                    struct ct_page_live **out);

/* Fills in the answer with the whole present sample, for those who ask now and then. */
void ct_page_live_data(struct ct_page_live *live, struct ct_http_answer *out);

/* Gives *out, a response whose body is the events; to be queued and destroyed. CT_ENOMEM. */
CT_MUST_CHECK int ct_page_live_watch(struct ct_page_live *live, struct MHD_Connection *connection,
                                     struct MHD_Response **out);

/* Sends all viewers, also those to come, how the job has ended: `json` is an object in one line.
 * Without memory nobody hears it. The second call and later ones do nothing. */
void ct_page_live_tell_end(struct ct_page_live *live, const char *json);

/* Are there viewers that have not taken it yet? */
bool ct_page_live_is_telling_end(const struct ct_page_live *live);

/* How many viewers take the events. */
unsigned ct_page_live_viewers(const struct ct_page_live *live);

/* Takes a sample before its time. */
void ct_page_live_sample(struct ct_page_live *live);

/* Ends the stream of each viewer, and lets all waiting connections go on, as the library wants it
 * before it stops. The last bytes are sent in the library's next turns. A browser may drop the last
 * events of a stream that breaks off. */
void ct_page_live_finish(struct ct_page_live *live);

/* To be called when no viewer is left. `cb` hears when it is freed. */
void ct_page_live_close(struct ct_page_live *live, void (*cb)(void *data), void *data);

#endif
