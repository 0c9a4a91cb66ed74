/* SPDX-License-Identifier: Apache-2.0
 *
 * A job has few ports, so all searches are linear.
 */
#include "launcher/worker/job_ports.h"

#include "common/num.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

_Static_assert(CT_JOB_PORTS_MAX *(CT_JOB_PORT_NAME_MAX + sizeof("=65535 ")) < CT_CONTROL_PORTS_MAX,
               "the text of all ports fits into a message");

static bool is_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(i > 0 && c >= '0' && c <= '9')) {
            return false;
        }
    }
    return len > 0;
}

static struct ct_job_port *find(struct ct_job_ports *ports, const char *name, size_t len)
{
    for (int i = 0; i < ports->count; i++) {
        struct ct_job_port *port = &ports->list[i];
        if (strlen(port->name) == len && strncasecmp(port->name, name, len) == 0) {
            return port;
        }
    }
    return NULL;
}

int ct_job_ports_add(struct ct_job_ports *ports, const char *name, size_t len, struct ct_err *err)
{
    int shown = len < CT_JOB_PORT_NAME_MAX ? (int)len : CT_JOB_PORT_NAME_MAX;
    if (!is_name(name, len)) {
        return ct_err_set(err, CT_EINVAL,
                          "'%.*s' cannot be the name of a port: it must have letters, digits and "
                          "'_' only, and not begin with a digit",
                          shown, name);
    }
    if (len > CT_JOB_PORT_NAME_MAX) {
        return ct_err_set(err, CT_ELIMIT,
                          "'%.*s...' is too long for the name of a port (at most %d)", shown, name,
                          CT_JOB_PORT_NAME_MAX);
    }
    const struct ct_job_port *same = find(ports, name, len);
    if (same != NULL && memcmp(same->name, name, len) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "the ports '%s' and '%.*s' would have the same variable: write both in "
                          "one way",
                          same->name, shown, name);
    }
    if (same != NULL) {
        return 0;
    }
    if (ports->count == CT_JOB_PORTS_MAX) {
        return ct_err_set(err, CT_ELIMIT, "a job can have %d ports; '%.*s' is one more",
                          CT_JOB_PORTS_MAX, shown, name);
    }
    struct ct_job_port *port = &ports->list[ports->count++];
    memcpy(port->name, name, len);
    port->name[len] = '\0';
    port->port = 0;
    return 0;
}

void ct_job_ports_write(const struct ct_job_ports *ports, char out[CT_CONTROL_PORTS_MAX])
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < ports->count; i++) {
        int n = snprintf(&out[len], CT_CONTROL_PORTS_MAX - len, "%s%s=%u", i > 0 ? " " : "",
                         ports->list[i].name, (unsigned)ports->list[i].port);
        len += (size_t)n; /* it fits: see above */
    }
}

static int read_one(const char *text, size_t len, struct ct_job_ports *ports, struct ct_err *err)
{
    const char *equals = memchr(text, '=', len);
    char digits[8] = "";
    int value = 0;
    size_t name_len = equals != NULL ? (size_t)(equals - text) : 0;
    size_t rest = equals != NULL ? len - name_len - 1 : 0;
    if (rest > 0 && rest < sizeof(digits)) {
        memcpy(digits, equals + 1, rest);
    }
    if (!is_name(text, name_len) || ct_parse_int(digits, 1, UINT16_MAX, &value) != 0) {
        return ct_err_set(err, CT_EFORMAT, "'%.*s' does not say which port a name has",
                          len < 60 ? (int)len : 60, text);
    }
    struct ct_job_port *port = find(ports, text, name_len);
    if (port != NULL) {
        port->port = (uint16_t)value;
    }
    return 0;
}

static void forget(struct ct_job_ports *ports)
{
    for (int i = 0; i < ports->count; i++) {
        ports->list[i].port = 0;
    }
}

int ct_job_ports_read(const char *text, struct ct_job_ports *ports, struct ct_err *err)
{
    forget(ports);
    while (*text != '\0') {
        size_t len = strcspn(text, " ");
        int rc = read_one(text, len, ports, err);
        if (rc != 0) {
            forget(ports);
            return rc;
        }
        text += len + (text[len] != '\0');
    }
    return 0;
}
