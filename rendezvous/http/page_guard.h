/* SPDX-License-Identifier: Apache-2.0
 *
 * May a browser's request see the live page, the status or the metrics? Its address has been judged
 * already. What is left is a page of somebody else that makes the browser of an admitted person
 * ask: by a name that its owner lets point here (DNS rebinding), which the Host header shows, or
 * from another page, which the Origin header shows. Pure.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_GUARD_H
#define CT_RENDEZVOUS_HTTP_PAGE_GUARD_H

#include <stdbool.h>

/* `host` and `origin` are the headers, NULL = missing; `own_name` is the name of this machine, and
 * `told_name` the name under which its user tells others of it, NULL = none. Returns what is wrong,
 * NULL = nothing. Admitted are addresses, names without a dot, which nobody can register, and these
 * two names. */
const char *ct_page_guard_judge(const char *host, const char *origin, const char *own_name,
                                const char *told_name);

/* Does the request come from a browser? Every browser says which languages its user reads, unless
 * an extension takes that away, and for which purpose it asks (Sec-Fetch-Mode), if the name is one
 * of this machine's own; a page cannot stop it from that. Prometheus, curl and ctrun-stat say
 * neither. All are headers, NULL = missing. */
bool ct_page_guard_is_browser(const char *accept_language, const char *origin,
                              const char *fetch_mode);

/* Does the Accept header ask for HTML? That of a browser does, that of curl does not. */
bool ct_page_guard_wants_html(const char *accept);

#endif
