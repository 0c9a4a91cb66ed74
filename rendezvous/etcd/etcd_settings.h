/* SPDX-License-Identifier: Apache-2.0
 *
 * Where etcd is and how to log in there: the list of its addresses, and the variables that etcdctl
 * reads for the same purpose. Pure.
 *
 *     ETCDCTL_CACERT                    a file with the certificates that etcd's is checked against
 *     ETCDCTL_CERT, ETCDCTL_KEY         files with our certificate and its key
 *     ETCDCTL_USER                      NAME, or NAME:PASSWORD if ETCDCTL_PASSWORD is not set
 *     ETCDCTL_PASSWORD                  the password
 *     ETCDCTL_INSECURE_SKIP_TLS_VERIFY  true: etcd's certificate is not checked
 *
 * As for etcdctl, an empty variable counts as not set.
 */
#ifndef CT_RENDEZVOUS_ETCD_ETCD_SETTINGS_H
#define CT_RENDEZVOUS_ETCD_ETCD_SETTINGS_H

#include "common/addr.h"
#include "common/err.h"

#include <stdbool.h>

/* Clusters of etcd have 3 to 7 members. */
#define CT_ETCD_ENDPOINTS_MAX 8
#define CT_ETCD_PORT 2379
#define CT_ETCD_URL_MAX (sizeof("https://") + CT_ADDR_JOIN_MAX)
/* PATH_MAX of Linux. */
#define CT_ETCD_PATH_MAX 4096
/* etcd itself knows no limit. Longer ones are mistakes, such as a file in place of a name. */
#define CT_ETCD_USER_MAX 256
#define CT_ETCD_PASSWORD_MAX 1024

/* An empty text is one that is not given. */
struct ct_etcd_settings {
    char urls[CT_ETCD_ENDPOINTS_MAX][CT_ETCD_URL_MAX]; /* "https://HOST:PORT", without a path */
    int num_urls;
    char cacert[CT_ETCD_PATH_MAX], cert[CT_ETCD_PATH_MAX], key[CT_ETCD_PATH_MAX];
    bool skip_verify;
    char user[CT_ETCD_USER_MAX];
    char password[CT_ETCD_PASSWORD_MAX]; /* UTF-8, as the user name is */
};

/* Reads "HOST[:PORT][,HOST[:PORT]...]", each with or without http:// or https://, and an IPv6
 * address in brackets if it has a port. Without a scheme it is https if ETCDCTL_CACERT or
 * ETCDCTL_CERT is set, else http. `env` is an environment block (NAME=VALUE, NULL at the end).
 * CT_EFORMAT and CT_ELIMIT name the wrong part, and never show a password. */
CT_MUST_CHECK int ct_etcd_settings_read(const char *endpoints, char *const *env,
                                        struct ct_etcd_settings *out, struct ct_err *err);

/* Wipes the password. NULL is allowed. */
void ct_etcd_settings_fini(struct ct_etcd_settings *settings);

#endif
