/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes the headers apart. They come from anybody, so whatever is not understood is refused.
 */
#include "rendezvous/http/page_guard.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* The longest name that DNS knows. */
#define NAME_MAX_LEN 253

/* The name or address of a Host header without port and brackets. False: it is none. */
static bool cut_name(const char *host, char out[NAME_MAX_LEN + 1])
{
    bool bracket = host[0] == '[';
    size_t len = bracket ? strcspn(host, "]") : strcspn(host, ":");
    const char *rest = host + len + (bracket && host[len] == ']');
    const char *from = host + bracket;
    len -= bracket;
    if ((bracket && rest[-1] != ']') || len == 0 || len > NAME_MAX_LEN ||
        (*rest != '\0' && *rest != ':') ||
        strspn(rest + (*rest == ':'), "0123456789") != strlen(rest + (*rest == ':'))) {
        return false;
    }
    memcpy(out, from, len);
    out[len] = '\0';
    return true;
}

static bool is_address(const char *name)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* Firefox, Chromium and Safari leave out Origin when a page reads with GET and without CORS, but
 * tell of the page in Sec-Fetch-Site, if the address is one of this machine's own. */
static bool is_of_other_page(const struct ct_page_request *request)
{
    const char *site = request->fetch_site;
    if (site == NULL || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0) {
        return false;
    }
    bool is_link = request->fetch_mode != NULL && strcmp(request->fetch_mode, "navigate") == 0 &&
                   request->fetch_dest != NULL && strcmp(request->fetch_dest, "document") == 0;
    return !is_link;
}

const char *ct_page_guard_judge(const struct ct_page_request *request, const char *own_name,
                                const char *told_name)
{
    static const char http[] = "http://";
    const char *host = request->host, *origin = request->origin;
    char name[NAME_MAX_LEN + 1];
    if (host == NULL || !cut_name(host, name)) {
        return "the request has no usable Host header";
    }
    bool known =
        strcasecmp(name, own_name) == 0 || (told_name != NULL && strcasecmp(name, told_name) == 0);
    if (!is_address(name) && strchr(name, '.') != NULL && !known) {
        return "the name in the Host header is not known to be of this machine; ask by its address";
    }
    bool is_ours = origin == NULL || (strncmp(origin, http, sizeof(http) - 1) == 0 &&
                                      strcasecmp(origin + sizeof(http) - 1, host) == 0);
    if (!is_ours) {
        return "another page has asked, as the Origin header says";
    }
    return is_of_other_page(request) ? "another page has asked, as the Sec-Fetch-Site header says"
                                     : NULL;
}

bool ct_page_guard_is_browser(const struct ct_page_request *request)
{
    return request->accept_language != NULL || request->origin != NULL ||
           request->fetch_site != NULL || request->fetch_mode != NULL;
}

bool ct_page_guard_wants_html(const char *accept)
{
    return accept != NULL && strcasestr(accept, "text/html") != NULL;
}
