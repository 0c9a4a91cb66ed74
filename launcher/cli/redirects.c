/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the maps of --redirects and --tee. The bits of a digit are the streams: 3 is stdout and
 * stderr.
 */
#include "launcher/cli/redirects.h"

#include <string.h>

static bool is_streams(char c)
{
    return c >= '0' && c <= '3';
}

static int fail(const char *text, struct ct_err *err)
{
    return ct_err_set(err, CT_EFORMAT,
                      "'%.64s' is neither 0 (none), 1 (stdout), 2 (stderr), 3 (both) nor a list "
                      "like 0:1,1:3 of one-digit local ranks",
                      text);
}

int ct_redirects_parse(const char *text, struct ct_redirects *out, struct ct_err *err)
{
    struct ct_redirects parsed = {0};
    if (is_streams(text[0]) && text[1] == '\0') {
        parsed.all = (uint8_t)(text[0] - '0');
        *out = parsed;
        return 0;
    }
    parsed.has_map = true;
    for (const char *p = text;; p += 4) {
        if (p[0] < '0' || p[0] > '9' || p[1] != ':' || !is_streams(p[2])) {
            return fail(text, err);
        }
        parsed.mapped[p[0] - '0'] = (uint8_t)(p[2] - '0');
        if (p[3] == '\0') {
            break;
        }
        if (p[3] != ',') {
            return fail(text, err);
        }
    }
    *out = parsed;
    return 0;
}

unsigned ct_redirects_of(const struct ct_redirects *redirects, int local_rank)
{
    if (!redirects->has_map) {
        return redirects->all;
    }
    return local_rank < CT_REDIRECTS_MAPPED ? redirects->mapped[local_rank] : CT_STREAMS_NONE;
}

bool ct_redirects_any(const struct ct_redirects *redirects)
{
    static const uint8_t none[CT_REDIRECTS_MAPPED];
    return redirects->all != 0 ||
           (redirects->has_map && memcmp(redirects->mapped, none, sizeof(none)) != 0);
}
