/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds an interface by the addresses that the kernel lists for it (getifaddrs(3)). Asks the
 * resolver for the address of this machine's name, as gloo does.
 */
#include "launcher/setup/interface.h"

#include "common/file.h"
#include "launcher/util/environ.h"
#include "launcher/worker/worker_env.h"

#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What is read of a configuration file of NCCL, which has a few lines. */
#define NCCL_FILE_MAX ((size_t)1 << 16)

bool ct_interface_is_open(char *const *env)
{
    return ct_environ_get(env, CT_GLOO_INTERFACE_ENV) == NULL ||
           ct_environ_get(env, CT_NCCL_INTERFACE_ENV) == NULL;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    struct in6_addr a6, b6;
    return ct_addr_as_v6(a, &a6) && ct_addr_as_v6(b, &b6) && memcmp(&a6, &b6, sizeof(a6)) == 0;
}

static bool interface_of(const struct sockaddr *addr, char out[IF_NAMESIZE])
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list) != 0) {
        return false;
    }
    for (const struct ifaddrs *at = list; at != NULL && !found; at = at->ifa_next) {
        found = at->ifa_addr != NULL && (at->ifa_flags & IFF_UP) != 0 &&
                (at->ifa_flags & IFF_LOOPBACK) == 0 && strlen(at->ifa_name) < IF_NAMESIZE &&
                same_address(at->ifa_addr, addr);
        if (found) {
            (void)snprintf(out, IF_NAMESIZE, "%s", at->ifa_name);
        }
    }
    freeifaddrs(list);
    return found;
}

bool ct_interface_of_text(const char *address, char out[IF_NAMESIZE])
{
    struct sockaddr_storage addr;
    socklen_t len;
    return ct_addr_literal(address, 0, &addr, &len) &&
           interface_of((const struct sockaddr *)&addr, out);
}

/* Is this an address of this machine? gloo finds that out in the same way. */
static bool is_ours(const struct addrinfo *info)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ours = fd >= 0 && bind(fd, info->ai_addr, info->ai_addrlen) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ours;
}

static bool is_link_local(const struct sockaddr *addr)
{
    struct in6_addr v6;
    return ct_addr_as_v6(addr, &v6) && IN6_IS_ADDR_LINKLOCAL(&v6);
}

/* gloo takes the first address that it can bind, and sends it to the other machines. A link-local
 * address means nothing there, because it needs the number of this machine's link. */
static void look_up(struct ct_interface_facts *facts)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (getaddrinfo(facts->name, NULL, &hints, &list) != 0) {
        return;
    }
    const struct addrinfo *at = list;
    while (at != NULL && !is_ours(at)) {
        at = at->ai_next;
    }
    if (at != NULL) {
        char interface[IF_NAMESIZE];
        ct_addr_host(at->ai_addr, facts->means, sizeof(facts->means));
        facts->named = !is_link_local(at->ai_addr) && interface_of(at->ai_addr, interface);
    }
    freeaddrinfo(list);
}

/* ---- NCCL's files --------------------------------------------------------------------------- */

/* Does this file of "NAME=value" lines choose NCCL's interface? The environment wins over it. */
static bool file_decides(const char *path)
{
    static const char line[] = CT_NCCL_INTERFACE_ENV "=";
    struct ct_buf text = CT_BUF_INIT;
    bool found = false;
    if (ct_file_read(path, NCCL_FILE_MAX, &text, NULL) == 0) {
        const char *at = ct_buf_cstr(&text);
        while (at != NULL && !found) {
            found = strncmp(at, line, sizeof(line) - 1) == 0;
            at = strchr(at, '\n');
            at = at != NULL ? at + 1 : NULL;
        }
    }
    ct_buf_fini(&text);
    return found;
}

static bool nccl_is_configured(char *const *env)
{
    const char *named = ct_environ_get(env, "NCCL_CONF_FILE");
    const char *home = ct_environ_get(env, "HOME");
    char path[PATH_MAX];
    if (named != NULL && named[0] != '\0') {
        return file_decides(named) || file_decides("/etc/nccl.conf");
    }
    (void)snprintf(path, sizeof(path), "%s/.nccl.conf", home != NULL ? home : "");
    return file_decides(path) || file_decides("/etc/nccl.conf");
}

/* ---- all facts ------------------------------------------------------------------------------ */

void ct_interface_look(const char *name, const char *local_addr, char *const *env,
                       struct ct_interface_facts *out)
{
    struct ct_interface_facts facts = {0};
    struct sockaddr_storage addr;
    socklen_t len;
    (void)snprintf(facts.name, sizeof(facts.name), "%s", name);
    look_up(&facts);
    if (local_addr[0] != '\0' && ct_addr_resolve(local_addr, 0, &addr, &len, NULL) == 0) {
        (void)interface_of((const struct sockaddr *)&addr, facts.local);
    }
    facts.nccl_configured = nccl_is_configured(env);
    *out = facts;
}

void ct_interface_expect(const struct ct_options *options, const struct ct_resolved *resolved,
                         const struct ct_machine *machine, char *const *env,
                         struct ct_interface_facts *out)
{
    char own[CT_HOST_MAX];
    *out = (struct ct_interface_facts){0};
    if (!resolved->shared) {
        return;
    }
    ct_interface_look(machine->host, options->local_addr, env, out);
    if (resolved->etcd != NULL) {
        return; /* nobody knows yet where the store will be */
    }
    if (ct_addr_towards(resolved->store_address.host, own, sizeof(own), NULL) == 0) {
        (void)ct_interface_of_text(own, out->way);
    }
}
