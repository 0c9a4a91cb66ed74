/* SPDX-License-Identifier: Apache-2.0
 *
 * A job of one machine gets a store on a loopback address unless an option names another. The
 * machines of a shared job agree on one address, and each decides by it whether it hosts the store.
 */
#include "launcher/setup/store_address.h"

#include "common/addr.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool ct_options_shared(const struct ct_options *options)
{
    return !options->standalone &&
           (options->max_nodes > 1 || options->spares > 0 || options->rdzv_conf.is_host == 0);
}

static void decide_alone(const struct ct_options *options, struct ct_store_address *place)
{
    const char *local = options->local_addr[0] != '\0' ? options->local_addr : NULL;
    if (options->has_endpoint && !options->standalone) {
        place->host = options->endpoint.host;
        place->port = options->endpoint.port;
        place->option = "--rdzv-endpoint";
        if (options->backend == CT_RDZV_C10D && local != NULL) {
            place->also = place->host;
        }
    } else if (options->backend == CT_RDZV_STATIC && !options->standalone) {
        if (options->master_addr[0] != '\0') {
            place->host = options->master_addr;
            place->option = "--master-addr";
        }
        place->port = options->master_port > 0 ? (uint16_t)options->master_port : 0;
    }
    if (local != NULL && (place->option == NULL || place->also != NULL)) {
        place->host = local;
        place->option = "--local-addr";
    }
    place->master = place->host;
}

static void decide_shared(const struct ct_options *options, struct ct_store_address *place)
{
    int is_host = options->rdzv_conf.is_host;
    bool is_static = options->backend == CT_RDZV_STATIC;
    place->duty = is_host == 1 ? CT_HOST_HERE : is_host == 0 ? CT_HOST_ELSEWHERE : CT_HOST_IF_OURS;
    if (options->has_endpoint) {
        place->host = options->endpoint.host;
        place->port = options->endpoint.has_port ? options->endpoint.port : CT_PORT_C10D;
        place->option = "--rdzv-endpoint";
    } else if (is_static) {
        if (options->master_addr[0] != '\0') {
            place->host = options->master_addr;
        }
        place->port = options->master_port >= 0 ? (uint16_t)options->master_port : CT_PORT_STATIC;
        place->option = "--master-addr";
    }
    bool own = options->local_addr[0] != '\0' && !is_static && !ct_addr_is_any(options->local_addr);
    place->master = own ? options->local_addr : place->host;
}

void ct_store_address_decide(const struct ct_options *options, struct ct_store_address *out)
{
    struct ct_store_address place = {.host = "127.0.0.1"};
    if (ct_options_shared(options)) {
        decide_shared(options, &place);
    } else {
        decide_alone(options, &place);
    }
    *out = place;
}

static int check_local(const char *option, const char *host, struct ct_err *err)
{
    struct sockaddr_storage addr;
    socklen_t len;
    int rc = ct_addr_resolve(host, 0, &addr, &len, err);
    if (rc != 0) {
        return ct_err_wrap(err, "%s", option);
    }
    int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) != 0) {
        int error = errno;
        rc = error == EADDRNOTAVAIL
                 ? ct_err_set(err, CT_EINVAL,
                              "%s %.200s is not an address of this machine; a job of several is "
                              "started with --nnodes",
                              option, host)
                 : ct_err_sys(err, ct_code_from_errno(error), error, "%s: cannot listen on %s",
                              option, host);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

bool ct_store_address_is_own_name(const char *host)
{
    struct sockaddr_storage addr;
    socklen_t len;
    return !ct_addr_literal(host, 0, &addr, &len) &&
           ct_addr_resolve(host, 0, &addr, &len, NULL) == 0 &&
           ct_addr_is_loopback((const struct sockaddr *)&addr);
}

bool ct_store_address_is_store(const struct ct_store_address *place, const char *told)
{
    return told[0] == '\0' || ct_addr_is_any(told) || strcmp(told, place->host) == 0;
}

const char *ct_store_address_master(const struct ct_store_address *place, const char *told,
                                    bool on_loopback, const char *store_addr)
{
    if (!ct_store_address_is_store(place, told)) {
        return told;
    }
    if (on_loopback && store_addr[0] != '\0') {
        return store_addr;
    }
    /* Who listens on all addresses does so on this one, by IPv6 as well. */
    return ct_addr_is_any(place->host) ? "127.0.0.1" : place->host;
}

int ct_store_address_check(const struct ct_store_address *place, struct ct_err *err)
{
    if (place->duty != CT_HOST_HERE) {
        if (place->option == NULL) {
            return ct_err_set(err, CT_EINVAL,
                              "where is the job's store? c10d needs --rdzv-endpoint HOST[:PORT]");
        }
        return place->port != 0
                   ? 0
                   : ct_err_set(err, CT_EINVAL,
                                "%s: port 0 is a free one, which other machines cannot know",
                                place->option);
    }
    int rc = place->also != NULL ? check_local("--rdzv-endpoint", place->also, err) : 0;
    return rc != 0 || place->option == NULL ? rc : check_local(place->option, place->host, err);
}
