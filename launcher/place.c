/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/place.h"

#include "common/addr.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

void ct_place_decide(const struct ct_options *options, struct ct_place *out)
{
    const char *local = options->local_addr[0] != '\0' ? options->local_addr : NULL;
    struct ct_place place = {.host = "127.0.0.1"};
    if (options->has_endpoint && !options->standalone) {
        place.host = options->endpoint.host;
        place.port = options->endpoint.port;
        place.option = "--rdzv-endpoint";
        if (options->backend == CT_RDZV_C10D && local != NULL) {
            place.also = place.host;
        }
    } else if (options->backend == CT_RDZV_STATIC && !options->standalone) {
        if (options->master_addr[0] != '\0') {
            place.host = options->master_addr;
            place.option = "--master-addr";
        }
        place.port = options->master_port > 0 ? (uint16_t)options->master_port : 0;
    }
    if (local != NULL && (place.option == NULL || place.also != NULL)) {
        place.host = local;
        place.option = "--local-addr";
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
                 ? ct_err_set(
                       err, CT_EUNSUPPORTED,
                       "%s %.200s is not an address of this machine; more than one node is not "
                       "supported yet",
                       option, host)
                 : ct_err_sys(err, ct_code_from_errno(error), error, "%s: cannot listen on %s",
                              option, host);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

int ct_place_check(const struct ct_place *place, struct ct_err *err)
{
    int rc = place->also != NULL ? check_local("--rdzv-endpoint", place->also, err) : 0;
    return rc != 0 || place->option == NULL ? rc : check_local(place->option, place->host, err);
}
