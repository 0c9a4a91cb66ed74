/* SPDX-License-Identifier: Apache-2.0
 *
 * What hosts publish. Each leader listens, publishes its entry under the communicator's keys, and
 * reads the entries of the others. An entry that is malformed or does not fit the others is
 * CT_EPROTO. If a host does not publish one in time, the message names it.
 */
#include "worker/net/net_bootstrap.h"

#include "common/num.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static int fail_errno(struct ct_err *err, const char *what)
{
    int saved = errno;
    return ct_err_sys(err, ct_code_from_errno(saved), saved, "%s", what);
}

/* ---- publishing ------------------------------------------------------------------------------ */

static int listen_beside_store(struct net_bootstrap *boot, struct sockaddr_storage *at,
                               struct ct_err *err)
{
    socklen_t len = sizeof(*at);
    if (getsockname(boot->setup->store_fd, (struct sockaddr *)at, &len) != 0) {
        return fail_errno(err, "cannot tell this host's address");
    }
    if (at->ss_family == AF_INET) {
        ((struct sockaddr_in *)at)->sin_port = 0;
    } else if (at->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)at)->sin6_port = 0;
    } else {
        return ct_err_set(err, CT_EUNSUPPORTED, "the store is reached neither by IPv4 nor IPv6");
    }
    boot->listener = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (boot->listener < 0 || bind(boot->listener, (struct sockaddr *)at, len) != 0 ||
        listen(boot->listener, SOMAXCONN) != 0 ||
        getsockname(boot->listener, (struct sockaddr *)at, &len) != 0) {
        return fail_errno(err, "cannot listen for other hosts");
    }
    return 0;
}

static int publish_secret(struct net_bootstrap *boot, struct ct_err *err)
{
    unsigned char random[NET_PROOF_BYTES];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return fail_errno(err, "cannot get random bytes");
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        (void)snprintf(boot->secret + 2 * i, 3, "%02x", random[i]);
    }
    return boot->setup->set(boot->setup->data, "net/secret", boot->secret, 2 * NET_PROOF_BYTES,
                            err);
}

int net_bootstrap_publish(struct net_bootstrap *boot, struct ct_err *err)
{
    struct sockaddr_storage at = {0};
    int rc = listen_beside_store(boot, &at, err);
    if (rc == 0 && boot->net->node == 0) {
        rc = publish_secret(boot, err);
    }
    if (rc != 0) {
        return rc;
    }
    char key[32], where[CT_ADDR_TEXT_MAX], value[CT_ADDR_TEXT_MAX + 48];
    ct_addr_format((struct sockaddr *)&at, where, sizeof(where));
    (void)snprintf(key, sizeof(key), "net/%d", boot->net->node);
    (void)snprintf(value, sizeof(value), "%s %d %d %d", where, boot->setup->first,
                   boot->setup->local_size, (int)boot->setup->order);
    return boot->setup->set(boot->setup->data, key, value, strlen(value), err);
}

/* ---- reading the others' entries ------------------------------------------------------------- */

/* Writes "host 1", or "rank 5" for a link between two ranks. */
#define NODE_NAME_MAX 24
static const char *name_node(const struct net *net, int node, char out[NODE_NAME_MAX])
{
    (void)snprintf(out, NODE_NAME_MAX, "%s %d", net->names != NULL ? "rank" : "host",
                   net->names != NULL ? net->names[node] : node);
    return out;
}

static int get(struct net_bootstrap *boot, const char *key, struct ct_buf *out, struct ct_err *err)
{
    return boot->setup->get(boot->setup->data, key, boot->setup->timeout_ms, out, err);
}

static int learn_secret(struct net_bootstrap *boot, struct ct_err *err)
{
    struct ct_buf value = CT_BUF_INIT;
    char node_name[NODE_NAME_MAX];
    (void)name_node(boot->net, 0, node_name);
    int rc = get(boot, "net/secret", &value, err);
    if (rc == 0 && value.len != 2 * NET_PROOF_BYTES) {
        rc = ct_err_set(err, CT_EPROTO, "%s published no secret", node_name);
    }
    if (rc == 0) {
        memcpy(boot->secret, ct_buf_bytes(&value), 2 * NET_PROOF_BYTES);
    }
    ct_buf_fini(&value);
    return rc != 0 ? (ct_err_wrap(err, "%s has not come", node_name), rc) : 0;
}

static void name_host(const struct net_bootstrap *boot, int node)
{
    struct net_peer *peer = &boot->net->peers[node];
    char node_name[NODE_NAME_MAX], ranks[48] = "";
    (void)name_node(boot->net, node, node_name);
    if (boot->net->names == NULL && peer->size > 1) {
        (void)snprintf(ranks, sizeof(ranks), ", ranks %d to %d", peer->first,
                       peer->first + peer->size - 1);
    } else if (boot->net->names == NULL) {
        (void)snprintf(ranks, sizeof(ranks), ", rank %d", peer->first);
    }
    (void)snprintf(peer->name, sizeof(peer->name), "%s (%.64s%s)", node_name,
                   boot->where[node].host, ranks);
}

/* Reads the entry of a host: "address:port first size order". The bounds are those of any world
 * that can be opened, so that sums of `first` and `size` fit in an int. */
static int parse_host(struct net_bootstrap *boot, int node, char *text, struct ct_err *err)
{
    struct net_peer *peer = &boot->net->peers[node];
    char *rest = NULL;
    const char *where = strtok_r(text, " ", &rest);
    const char *first = strtok_r(NULL, " ", &rest), *size = strtok_r(NULL, " ", &rest);
    const char *order = strtok_r(NULL, " ", &rest);
    char node_name[NODE_NAME_MAX];
    int theirs = 0;
    if (order == NULL || ct_endpoint_parse(where, 0, &boot->where[node], NULL) != 0 ||
        ct_parse_int(first, 0, NET_HOSTS_MAX * SYNC_RANKS_MAX, &peer->first) != 0 ||
        ct_parse_int(size, 1, SYNC_RANKS_MAX, &peer->size) != 0 ||
        ct_parse_int(order, 0, INT_MAX, &theirs) != 0) {
        return ct_err_set(err, CT_EPROTO, "%s published an invalid entry",
                          name_node(boot->net, node, node_name));
    }
    name_host(boot, node);
    if (theirs != (int)boot->setup->order) {
        return ct_err_set(err, CT_EPROTO, "%s adds in another order than rank %d", peer->name,
                          boot->setup->rank);
    }
    return 0;
}

static int learn_host(struct net_bootstrap *boot, int node, struct ct_err *err)
{
    char key[32];
    (void)snprintf(key, sizeof(key), "net/%d", node);
    struct ct_buf value = CT_BUF_INIT;
    int rc = get(boot, key, &value, err);
    if (rc != 0) {
        char node_name[NODE_NAME_MAX];
        (void)ct_err_wrap(err, "%s has not come", name_node(boot->net, node, node_name));
    } else {
        char text[CT_ADDR_TEXT_MAX + 48];
        size_t len = value.len < sizeof(text) - 1 ? value.len : sizeof(text) - 1;
        memcpy(text, ct_buf_bytes(&value), len);
        text[len] = '\0';
        rc = parse_host(boot, node, text, err);
    }
    ct_buf_fini(&value);
    return rc;
}

/* Checks that the ranks of the hosts are 0 to world size - 1, one host after the other. */
static int check_layout(const struct net_bootstrap *boot, struct ct_err *err)
{
    int next = 0;
    for (int n = 0; n < boot->net->nodes; n++) {
        const struct net_peer *peer = &boot->net->peers[n];
        if (peer->first != next) {
            return ct_err_set(err, CT_EPROTO,
                              "%s should start with rank %d: RANK, LOCAL_RANK, GROUP_RANK and "
                              "LOCAL_WORLD_SIZE do not fit together",
                              peer->name, next);
        }
        next += peer->size;
        if (boot->setup->order == CTW_ORDER_TREE && peer->size != boot->net->peers[0].size) {
            return ct_err_set(err, CT_EINVAL,
                              "adding as a balanced tree needs equally many ranks on each host: "
                              "%s, %s",
                              boot->net->peers[0].name, peer->name);
        }
    }
    if (next != boot->setup->size) {
        return ct_err_set(err, CT_EPROTO, "the hosts have %d ranks, WORLD_SIZE is %d", next,
                          boot->setup->size);
    }
    return 0;
}

int net_bootstrap_learn(struct net_bootstrap *boot, struct ct_err *err)
{
    int rc = learn_secret(boot, err);
    for (int n = 0; n < boot->net->nodes && rc == 0; n++) {
        rc = learn_host(boot, n, err);
    }
    return rc == 0 ? check_layout(boot, err) : rc;
}
