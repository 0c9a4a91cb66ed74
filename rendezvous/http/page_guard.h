/* SPDX-License-Identifier: Apache-2.0
 *
 * May a browser's request see the live page, the status or the metrics? Its address has been judged
 * already. What is left is a page of somebody else that makes the browser of an admitted person
 * ask: by a name that its owner lets point here (DNS rebinding), which the Host header shows, or
 * from another page, which the Origin and Sec-Fetch-Site headers show. Pure.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_GUARD_H
#define CT_RENDEZVOUS_HTTP_PAGE_GUARD_H

#include <stdbool.h>

/* Headers of one request; NULL = missing. */
struct ct_page_request {
    const char *host, *origin;
    const char *accept_language;
    const char *fetch_site; /* Sec-Fetch-Site: from which page, compared with this one */
    const char *fetch_mode; /* Sec-Fetch-Mode: for which purpose */
    const char *fetch_dest; /* Sec-Fetch-Dest: for what kind of thing */
};

/* `own_name` is the name of this machine, and `told_name` the name under which its user tells
 * others of it, NULL = none. Returns what is wrong, NULL = nothing; the text
 * holds nothing of the request, so it may be logged. Admitted are addresses, names
 * without a dot, which nobody can register, and these two names. A page of another origin may ask
 * for nothing, also not one of the same site, which may be another port of this machine. It may
 * have a link that opens ours in a tab of its own, since it cannot read that tab. */
const char *ct_page_guard_judge(const struct ct_page_request *request, const char *own_name,
                                const char *told_name);

/* Does the request come from a browser? Every browser says which languages its user reads, unless
 * an extension takes that away, and for whom and for what it asks (Sec-Fetch-...), if the name is
 * one of this machine's own; a page cannot stop it from that. Prometheus, curl and ctrun-stat say
 * none of these. */
bool ct_page_guard_is_browser(const struct ct_page_request *request);

/* Does the Accept header ask for HTML? That of a browser does, that of curl does not. */
bool ct_page_guard_wants_html(const char *accept);

#endif
