/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said about the live page of a store that this process serves.
 */
#ifndef CT_LAUNCHER_SETUP_PAGE_URL_H
#define CT_LAUNCHER_SETUP_PAGE_URL_H

#include "launcher/cli/options.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/server/server_uv.h"

#include <stdbool.h>

/* A sentence, a host, a port and a key. */
#define CT_PAGE_LINE_MAX (CT_HOST_MAX + 256)

/* Writes where the page is, at the start of the job or `at_end`, when --linger begins. In a store
 * with a token the address has a new key, which opens the page once. False: nothing is to be said,
 * since standard error is no terminal and there is no --print-url. */
bool ct_page_url_line(struct ct_server *server, const char *host, const struct ct_options *options,
                      bool at_end, char out[CT_PAGE_LINE_MAX]);

#endif
