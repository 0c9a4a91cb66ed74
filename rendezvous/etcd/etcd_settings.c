/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads addresses and variables into fixed arrays. The addresses become URLs, so a host may only
 * have characters that cannot change what a URL means.
 */
#include "rendezvous/etcd/etcd_settings.h"

#include "common/text.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define ALPHANUMERIC "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* Returns the value of a variable; NULL if it is not set or empty. */
static const char *lookup(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; *env != NULL; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return (*env)[len + 1] != '\0' ? *env + len + 1 : NULL;
        }
    }
    return NULL;
}

static bool is_utf8(const char *text)
{
    while (*text != '\0') {
        uint32_t c;
        size_t len = ct_text_decode(text, &c);
        if (len == 0) {
            return false;
        }
        text += len;
    }
    return true;
}

/* Copies `len` bytes of a value that the message must not show. */
static int take(const char *name, const char *value, size_t len, char *out, size_t size,
                struct ct_err *err)
{
    if (len >= size) {
        return ct_err_set(err, CT_ELIMIT, "%s is longer than %zu characters", name, size - 1);
    }
    memcpy(out, value, len);
    out[len] = '\0';
    return 0;
}

static int take_path(char *const *env, const char *name, char out[CT_ETCD_PATH_MAX],
                     struct ct_err *err)
{
    const char *value = lookup(env, name);
    return value == NULL ? 0 : take(name, value, strlen(value), out, CT_ETCD_PATH_MAX, err);
}

/* With ETCDCTL_PASSWORD a colon belongs to the name, as for etcdctl. */
static int take_user(char *const *env, struct ct_etcd_settings *out, struct ct_err *err)
{
    const char *user = lookup(env, "ETCDCTL_USER");
    const char *name = "ETCDCTL_PASSWORD";
    const char *password = lookup(env, name);
    if (user == NULL && password == NULL) {
        return 0;
    }
    if (user == NULL) {
        return ct_err_set(err, CT_EFORMAT, "ETCDCTL_PASSWORD is set, but ETCDCTL_USER is not");
    }
    size_t len = strlen(user);
    if (password == NULL) {
        const char *colon = strchr(user, ':');
        if (colon == NULL) {
            return ct_err_set(err, CT_EFORMAT,
                              "ETCDCTL_USER has no password: set ETCDCTL_PASSWORD, too");
        }
        len = (size_t)(colon - user);
        name = "the password in ETCDCTL_USER";
        password = colon + 1;
    }
    if (len == 0 || password[0] == '\0') {
        return ct_err_set(err, CT_EFORMAT, "ETCDCTL_USER has no %s",
                          len == 0 ? "name" : "password after the colon");
    }
    if (!is_utf8(user) || !is_utf8(password)) {
        return ct_err_set(err, CT_EFORMAT, "ETCDCTL_USER or its password is not UTF-8");
    }
    int rc = take("the name in ETCDCTL_USER", user, len, out->user, sizeof(out->user), err);
    if (rc != 0) {
        return rc;
    }
    return take(name, password, strlen(password), out->password, sizeof(out->password), err);
}

/* Takes what Go's strconv.ParseBool() takes, since etcdctl uses it. */
static int take_skip_verify(char *const *env, bool *out, struct ct_err *err)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};
    const char *value = lookup(env, "ETCDCTL_INSECURE_SKIP_TLS_VERIFY");
    for (size_t i = 0; value != NULL && i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *out = strcmp(value, yes[i]) == 0;
            return 0;
        }
    }
    if (value == NULL) {
        return 0;
    }
    char shown[CT_TEXT_EXCERPT_MAX];
    return ct_err_set(err, CT_EFORMAT,
                      "ETCDCTL_INSECURE_SKIP_TLS_VERIFY is '%s': it must be true or false",
                      ct_text_excerpt(value, shown));
}

static int take_endpoint(const char *text, size_t len, const char *scheme,
                         char url[CT_ETCD_URL_MAX], struct ct_err *err)
{
    /* A name and a password in front of '@' must not get into a message. */
    if (memchr(text, '@', len) != NULL) {
        return ct_err_set(err, CT_EFORMAT,
                          "an address of etcd has an '@': the user belongs into ETCDCTL_USER");
    }
    char copy[CT_ETCD_URL_MAX];
    if (len >= sizeof(copy)) {
        return ct_err_set(err, CT_ELIMIT, "an address of etcd is longer than %zu characters",
                          sizeof(copy) - 1);
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    const char *host = copy;
    const char *end = strstr(copy, "://");
    if (end != NULL) {
        scheme = strncmp(copy, "https://", 8) == 0 ? "https" : "http";
        if (strncmp(copy, scheme, strlen(scheme)) != 0 || end != copy + strlen(scheme)) {
            return ct_err_set(err, CT_EFORMAT, "etcd: '%s' does not begin with http:// or https://",
                              copy);
        }
        host = end + 3;
        if (host[0] != '\0' && copy[len - 1] == '/') { /* many write it behind a URL */
            copy[len - 1] = '\0';
        }
    }
    struct ct_endpoint ep;
    int rc = ct_endpoint_parse(host, CT_ETCD_PORT, &ep, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "etcd");
        return rc;
    }
    if (ep.port == 0) {
        return ct_err_set(err, CT_EFORMAT, "etcd: address '%s' has port 0", host);
    }
    bool v6 = strchr(ep.host, ':') != NULL;
    size_t good = strspn(ep.host, v6 ? "0123456789abcdefABCDEF:." : ALPHANUMERIC "-._");
    if (ep.host[good] != '\0') {
        return ct_err_set(err, CT_EFORMAT, "etcd: address '%s' has a '%c', which no host has", host,
                          ep.host[good]);
    }
    char address[CT_ADDR_JOIN_MAX];
    ct_addr_join(ep.host, ep.port, address, sizeof(address));
    (void)snprintf(url, CT_ETCD_URL_MAX, "%s://%s", scheme, address);
    return 0;
}

static int take_endpoints(const char *list, const char *scheme, struct ct_etcd_settings *out,
                          struct ct_err *err)
{
    for (const char *text = list;; text++) {
        size_t len = strcspn(text, ",");
        if (len == 0) {
            return ct_err_set(err, CT_EFORMAT, "the list of etcd's addresses %s",
                              *list == '\0' ? "is empty" : "has an empty one");
        }
        if (out->num_urls == CT_ETCD_ENDPOINTS_MAX) {
            return ct_err_set(err, CT_ELIMIT, "the list of etcd's addresses has more than %d",
                              CT_ETCD_ENDPOINTS_MAX);
        }
        int rc = take_endpoint(text, len, scheme, out->urls[out->num_urls], err);
        if (rc != 0) {
            return rc;
        }
        out->num_urls++;
        text += len;
        if (*text == '\0') {
            return 0;
        }
    }
}

static int read_all(const char *endpoints, char *const *env, struct ct_etcd_settings *out,
                    struct ct_err *err)
{
    int rc = take_path(env, "ETCDCTL_CACERT", out->cacert, err);
    if (rc == 0) {
        rc = take_path(env, "ETCDCTL_CERT", out->cert, err);
    }
    if (rc == 0) {
        rc = take_path(env, "ETCDCTL_KEY", out->key, err);
    }
    if (rc != 0) {
        return rc;
    }
    if ((out->cert[0] != '\0') != (out->key[0] != '\0')) {
        return ct_err_set(err, CT_EFORMAT, "ETCDCTL_CERT and ETCDCTL_KEY belong together, but %s",
                          out->key[0] == '\0' ? "ETCDCTL_KEY is not set"
                                              : "ETCDCTL_CERT is not set");
    }
    rc = take_skip_verify(env, &out->skip_verify, err);
    if (rc != 0) {
        return rc;
    }
    rc = take_user(env, out, err);
    if (rc != 0) {
        return rc;
    }
    bool tls = out->cacert[0] != '\0' || out->cert[0] != '\0';
    return take_endpoints(endpoints, tls ? "https" : "http", out, err);
}

int ct_etcd_settings_read(const char *endpoints, char *const *env, struct ct_etcd_settings *out,
                          struct ct_err *err)
{
    struct ct_etcd_settings settings;
    memset(&settings, 0, sizeof(settings));
    int rc = read_all(endpoints, env, &settings, err);
    if (rc == 0) {
        *out = settings;
    }
    ct_etcd_settings_fini(&settings);
    return rc;
}

void ct_etcd_settings_fini(struct ct_etcd_settings *settings)
{
    if (settings != NULL) {
        sodium_memzero(settings->password, sizeof(settings->password));
    }
}
