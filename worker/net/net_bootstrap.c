/* SPDX-License-Identifier: Apache-2.0
 *
 * Each leader listens, publishes its entry under the communicator's keys, and reads those of the
 * others until the deadline. An entry that does not parse or does not fit the others is CT_EPROTO;
 * a host that does not come is named.
 */
#include "worker/net/net_book.h"

#include "common/clock.h"
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

static int listen_beside_store(struct net_book *book, struct sockaddr_storage *at,
                               struct ct_err *err)
{
    socklen_t len = sizeof(*at);
    if (getsockname(book->setup->store_fd, (struct sockaddr *)at, &len) != 0) {
        return fail_errno(err, "cannot tell this host's address");
    }
    if (at->ss_family == AF_INET) {
        ((struct sockaddr_in *)at)->sin_port = 0;
    } else if (at->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)at)->sin6_port = 0;
    } else {
        return ct_err_set(err, CT_EUNSUPPORTED, "the store is reached neither by IPv4 nor IPv6");
    }
    book->listener = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (book->listener < 0 || bind(book->listener, (struct sockaddr *)at, len) != 0 ||
        listen(book->listener, SOMAXCONN) != 0 ||
        getsockname(book->listener, (struct sockaddr *)at, &len) != 0) {
        return fail_errno(err, "cannot listen for other hosts");
    }
    return 0;
}

static int publish_secret(struct net_book *book, struct ct_err *err)
{
    unsigned char random[NET_PROOF_BYTES];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return fail_errno(err, "cannot get random bytes");
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        (void)snprintf(book->secret + 2 * i, 3, "%02x", random[i]);
    }
    return book->setup->set(book->setup->data, "net/secret", book->secret, 2 * NET_PROOF_BYTES,
                            err);
}

int net_book_publish(struct net_book *book, struct ct_err *err)
{
    struct sockaddr_storage at = {0};
    int rc = listen_beside_store(book, &at, err);
    if (rc == 0 && book->net->node == 0) {
        rc = publish_secret(book, err);
    }
    if (rc != 0) {
        return rc;
    }
    char key[32], where[CT_ADDR_TEXT_MAX], value[CT_ADDR_TEXT_MAX + 48];
    ct_addr_format((struct sockaddr *)&at, where, sizeof(where));
    (void)snprintf(key, sizeof(key), "net/%d", book->net->node);
    (void)snprintf(value, sizeof(value), "%s %d %d %d", where, book->setup->first,
                   book->setup->local_size, (int)book->setup->order);
    return book->setup->set(book->setup->data, key, value, strlen(value), err);
}

/* ---- who and where are the others? ---------------------------------------------------------- */

/* "host 1"; between two ranks "rank 5". */
#define CALLED_MAX 24
static const char *call_it(const struct net *net, int node, char out[CALLED_MAX])
{
    (void)snprintf(out, CALLED_MAX, "%s %d", net->names != NULL ? "rank" : "host",
                   net->names != NULL ? net->names[node] : node);
    return out;
}

static int get(struct net_book *book, const char *key, struct ct_buf *out, struct ct_err *err)
{
    return book->setup->get(book->setup->data, key, ct_deadline_left_ms(NULL, book->deadline), out,
                            err);
}

static int learn_secret(struct net_book *book, struct ct_err *err)
{
    struct ct_buf value = CT_BUF_INIT;
    char called[CALLED_MAX];
    (void)call_it(book->net, 0, called);
    int rc = get(book, "net/secret", &value, err);
    if (rc == 0 && value.len != 2 * NET_PROOF_BYTES) {
        rc = ct_err_set(err, CT_EPROTO, "%s published no secret", called);
    }
    if (rc == 0) {
        memcpy(book->secret, ct_buf_bytes(&value), 2 * NET_PROOF_BYTES);
    }
    ct_buf_fini(&value);
    return rc != 0 ? (ct_err_wrap(err, "%s has not come", called), rc) : 0;
}

static void name_host(const struct net_book *book, int node)
{
    struct net_peer *peer = &book->net->peers[node];
    char called[CALLED_MAX], ranks[48] = "";
    (void)call_it(book->net, node, called);
    if (book->net->names == NULL && peer->size > 1) {
        (void)snprintf(ranks, sizeof(ranks), ", ranks %d to %d", peer->first,
                       peer->first + peer->size - 1);
    } else if (book->net->names == NULL) {
        (void)snprintf(ranks, sizeof(ranks), ", rank %d", peer->first);
    }
    (void)snprintf(peer->name, sizeof(peer->name), "%s (%.64s%s)", called, book->where[node].host,
                   ranks);
}

/* "address:port first size order" of a host. */
static int parse_host(struct net_book *book, int node, char *text, struct ct_err *err)
{
    struct net_peer *peer = &book->net->peers[node];
    char *rest = NULL;
    const char *where = strtok_r(text, " ", &rest);
    const char *first = strtok_r(NULL, " ", &rest), *size = strtok_r(NULL, " ", &rest);
    const char *order = strtok_r(NULL, " ", &rest);
    char called[CALLED_MAX];
    int theirs = 0;
    if (order == NULL || ct_endpoint_parse(where, 0, &book->where[node], NULL) != 0 ||
        ct_parse_int(first, 0, INT_MAX, &peer->first) != 0 ||
        ct_parse_int(size, 1, INT_MAX, &peer->size) != 0 ||
        ct_parse_int(order, 0, INT_MAX, &theirs) != 0) {
        return ct_err_set(err, CT_EPROTO, "%s published what makes no sense",
                          call_it(book->net, node, called));
    }
    name_host(book, node);
    if (theirs != (int)book->setup->order) {
        return ct_err_set(err, CT_EPROTO, "%s adds in another order than rank %d", peer->name,
                          book->setup->rank);
    }
    return 0;
}

static int learn_host(struct net_book *book, int node, struct ct_err *err)
{
    char key[32];
    (void)snprintf(key, sizeof(key), "net/%d", node);
    struct ct_buf value = CT_BUF_INIT;
    int rc = get(book, key, &value, err);
    if (rc != 0) {
        char called[CALLED_MAX];
        (void)ct_err_wrap(err, "%s has not come", call_it(book->net, node, called));
    } else {
        char text[CT_ADDR_TEXT_MAX + 48];
        size_t len = value.len < sizeof(text) - 1 ? value.len : sizeof(text) - 1;
        memcpy(text, ct_buf_bytes(&value), len);
        text[len] = '\0';
        rc = parse_host(book, node, text, err);
    }
    ct_buf_fini(&value);
    return rc;
}

/* The ranks of the hosts must be 0 .. world - 1, one host after the other. */
static int check_layout(const struct net_book *book, struct ct_err *err)
{
    int next = 0;
    for (int n = 0; n < book->net->nodes; n++) {
        const struct net_peer *peer = &book->net->peers[n];
        if (peer->first != next) {
            return ct_err_set(err, CT_EPROTO,
                              "%s should start with rank %d: RANK, LOCAL_RANK, GROUP_RANK and "
                              "LOCAL_WORLD_SIZE do not fit together",
                              peer->name, next);
        }
        next += peer->size;
        if (book->setup->order == CTW_ORDER_TREE && peer->size != book->net->peers[0].size) {
            return ct_err_set(err, CT_EINVAL,
                              "adding as a balanced tree needs equally many ranks on each host: "
                              "%s, %s",
                              book->net->peers[0].name, peer->name);
        }
    }
    if (next != book->setup->size) {
        return ct_err_set(err, CT_EPROTO, "the hosts have %d ranks, WORLD_SIZE is %d", next,
                          book->setup->size);
    }
    return 0;
}

int net_book_learn(struct net_book *book, struct ct_err *err)
{
    int rc = learn_secret(book, err);
    for (int n = 0; n < book->net->nodes && rc == 0; n++) {
        rc = learn_host(book, n, err);
    }
    return rc == 0 ? check_layout(book, err) : rc;
}
