/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces http_uv.c in a build without libmicrohttpd. There is never an object, and
 * http_reserve_uv.c answers all requests.
 */
#include "rendezvous/http/http_uv.h"

#include <string.h>

int ct_http_open(uv_loop_t *loop, const struct ct_http_source *source, int64_t request_ms,
                 const struct ct_log *log, struct ct_http **out, struct ct_err *err)
{
    (void)loop;
    (void)source;
    (void)request_ms;
    (void)log;
    (void)err;
    *out = NULL;
    return 0;
}

int ct_http_add(struct ct_http *http, int fd, bool ours, bool admitted, struct ct_err *err)
{
    (void)fd;
    (void)ours;
    (void)admitted;
    (void)err;
    CT_ASSERT(http != NULL);
    return 0;
}

void ct_http_sample(struct ct_http *http)
{
    (void)http;
}

void ct_http_tell_end(struct ct_http *http, const char *json)
{
    (void)http;
    (void)json;
}

bool ct_http_is_telling_end(const struct ct_http *http)
{
    (void)http;
    return false;
}

void ct_http_stats(const struct ct_http *http, struct ct_http_stats *out)
{
    (void)http;
    memset(out, 0, sizeof(*out));
}

void ct_http_close(struct ct_http *http, ct_http_close_fn cb, void *data)
{
    (void)cb;
    (void)data;
    CT_ASSERT(http != NULL);
}
