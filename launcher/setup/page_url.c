/* SPDX-License-Identifier: Apache-2.0
 *
 * Without random numbers the address has no key. The page then shows all but what workers have
 * written.
 */
#include "launcher/setup/page_url.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool ct_page_url_line(struct ct_server *server, const char *host, const struct ct_options *options,
                      bool at_end, char out[CT_PAGE_LINE_MAX])
{
    struct ct_token key;
    char more[64] = "";
    bool colon = strchr(host, ':') != NULL;
    if (!options->print_url && !isatty(STDERR_FILENO)) {
        return false;
    }
    if (ct_server_page_link(server, &key) == CT_EUNSUPPORTED) {
        (void)snprintf(out, CT_PAGE_LINE_MAX,
                       "there is no live page: this ctrun was built without libmicrohttpd");
        return options->print_url && !at_end;
    }
    if (at_end) {
        (void)snprintf(more, sizeof(more), " for %d s; Ctrl-C ends that", options->linger);
    }
    (void)snprintf(out, CT_PAGE_LINE_MAX, "%s http://%s%s%s:%u/%s%.*s%s",
                   at_end ? "the live page stays at" : "live page:", colon ? "[" : "", host,
                   colon ? "]" : "", (unsigned)ct_server_port(server), key.len > 0 ? "#key=" : "",
                   (int)key.len, key.text, more);
    ct_token_wipe(&key);
    return true;
}
