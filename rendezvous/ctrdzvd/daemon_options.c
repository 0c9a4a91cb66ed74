/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading ends at --help and --version, so that they work whatever follows. An argument that is no
 * option is refused.
 */
#include "rendezvous/ctrdzvd/daemon_options.h"

#include "common/num.h"
#include "common/option_parser.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

const char ct_daemon_help[] =
    "usage: ctrdzvd [--listen ADDR]... [--port N] [--allow NET]... [--open]\n"
    "               [--max-memory SIZE] [--max-connections N]\n"
    "               [--journal FILE [--journal-sync]] [--token-file FILE]\n"
    "               [--ready-fd N] [--http-keys]\n"
    "\n"
    "Serves the key/value store of distributed jobs (PyTorch's TCPStore protocol).\n"
    "The ctrun of each node joins its job here.\n"
    "\n"
    "  --listen ADDR   address to listen on; '*' = all; may be repeated (default 127.0.0.1)\n"
    "  --port N        port to listen on; 0 = any free one (default 29500)\n"
    "  --allow NET     also serve clients of this network, such as 10.0.0.0/8; may be\n"
    "                  repeated (default: only clients on this machine)\n"
    "  --open          serve every client that reaches the port\n"
    "  --max-memory SIZE\n"
    "                  the most memory that clients may use, such as 500M or 4G\n"
    "  --max-connections N\n"
    "                  the most connections; further ones are closed at once\n"
    "  --journal FILE  keep the keys in FILE, so that they survive a restart of the daemon\n"
    "  --journal-sync  wait for the disk after each write, so that the keys also survive a\n"
    "                  crash of the machine\n"
    "  --token-file FILE\n"
    "                  the token of the jobs (default: CTRUN_TOKEN); a ctrun that has it is\n"
    "                  admitted, and so are the workers on its machine\n"
    "  --ready-fd N    when ready, write the port and a newline to descriptor N and close it\n"
    "  --http-keys     list names and sizes of keys at http://ADDR:PORT/keys\n"
    "  -V, --version   print the version and exit\n"
    "  -h, --help      print this and exit\n";

enum option {
    LISTEN,
    PORT,
    ALLOW,
    OPEN,
    MAX_MEMORY,
    MAX_CONNECTIONS,
    TOKEN_FILE,
    JOURNAL,
    JOURNAL_SYNC,
    READY_FD,
    HTTP_KEYS,
    VERSION,
    HELP,
};

static int take_port(const char *text, uint16_t *out, struct ct_err *err)
{
    int port;
    if (ct_parse_int(text, 0, UINT16_MAX, &port) != 0) {
        return ct_err_set(err, CT_EINVAL, "--port '%s' is not a number from 0 to 65535", text);
    }
    *out = (uint16_t)port;
    return 0;
}

static int take_ready_fd(const char *text, int *out, struct ct_err *err)
{
    int fd;
    if (ct_parse_int(text, 0, INT_MAX, &fd) != 0) {
        return ct_err_set(err, CT_EINVAL, "--ready-fd '%s' is not a descriptor number", text);
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
        return ct_err_set(err, CT_EINVAL, "--ready-fd %d is not open for writing", fd);
    }
    *out = fd;
    return 0;
}

static int take_listen(const char *text, struct ct_daemon_options *o, struct ct_err *err)
{
    if (text[0] == '\0') {
        return ct_err_set(err, CT_EINVAL, "--listen needs an address");
    }
    if (o->num_hosts == CT_MAX_LISTENERS) {
        return ct_err_set(err, CT_EINVAL, "--listen '%s': more than %d addresses", text,
                          CT_MAX_LISTENERS);
    }
    o->hosts[o->num_hosts++] = text;
    return 0;
}

/* With less memory a value of the largest size would not fit. */
#define MIN_MEMORY_MIB 32

/* Reads a number of bytes, KiB, MiB, GiB or TiB. */
static int take_size(const char *text, size_t *out, struct ct_err *err)
{
    static const char units[] = "KMGT";
    char digits[24];
    size_t len = strlen(text);
    const char *unit = len > 1 ? strchr(units, text[len - 1]) : NULL;
    int shift = unit != NULL ? 10 * ((int)(unit - units) + 1) : 0;
    len -= unit != NULL;
    int64_t n;
    if (len >= sizeof(digits)) {
        return ct_err_set(err, CT_EINVAL, "--max-memory '%s' is too large", text);
    }
    memcpy(digits, text, len);
    digits[len] = '\0';
    int rc = ct_parse_i64(digits, 0, (int64_t)(SIZE_MAX >> 1 >> shift), &n);
    if (rc != 0) {
        return ct_err_set(err, CT_EINVAL, "--max-memory '%s' is not a size such as 500M or 4G",
                          text);
    }
    if ((size_t)n << shift < (size_t)MIN_MEMORY_MIB << 20) {
        return ct_err_set(err, CT_EINVAL, "--max-memory '%s' is less than %dM", text,
                          MIN_MEMORY_MIB);
    }
    *out = (size_t)n << shift;
    return 0;
}

static int take_connections(const char *text, size_t *out, struct ct_err *err)
{
    int n;
    if (ct_parse_int(text, 1, INT_MAX, &n) != 0) {
        return ct_err_set(err, CT_EINVAL, "--max-connections '%s' is not a positive number", text);
    }
    *out = (size_t)n;
    return 0;
}

static struct ct_option option_at(size_t index)
{
    static const struct ct_option table[] = {
        [LISTEN] = {"listen", .value = CT_VALUE_NEEDED},
        [PORT] = {"port", .value = CT_VALUE_NEEDED},
        [ALLOW] = {"allow", .value = CT_VALUE_NEEDED},
        [OPEN] = {"open"},
        [MAX_MEMORY] = {"max-memory", .value = CT_VALUE_NEEDED},
        [MAX_CONNECTIONS] = {"max-connections", .value = CT_VALUE_NEEDED},
        [TOKEN_FILE] = {"token-file", .value = CT_VALUE_NEEDED},
        [JOURNAL] = {"journal", .value = CT_VALUE_NEEDED},
        [JOURNAL_SYNC] = {"journal-sync"},
        [READY_FD] = {"ready-fd", .value = CT_VALUE_NEEDED},
        [HTTP_KEYS] = {"http-keys"},
        [VERSION] = {"version", 'V'},
        [HELP] = {"help", 'h'},
        {NULL},
    };
    return table[index];
}

static int take(enum option option, const char *value, struct ct_daemon_options *o,
                struct ct_err *err)
{
    switch (option) {
    case LISTEN:
        return take_listen(value, o, err);
    case PORT:
        return take_port(value, &o->port, err);
    case ALLOW:
        return ct_access_allow(&o->access, value, err) != 0 ? ct_err_wrap(err, "--allow") : 0;
    case OPEN:
        o->access.open = true;
        return 0;
    case MAX_MEMORY:
        return take_size(value, &o->max_memory, err);
    case MAX_CONNECTIONS:
        return take_connections(value, &o->max_connections, err);
    case TOKEN_FILE:
        o->token_file = value;
        return value[0] != '\0' ? 0 : ct_err_set(err, CT_EINVAL, "--token-file needs a file name");
    case JOURNAL:
        o->journal = value;
        return value[0] != '\0' ? 0 : ct_err_set(err, CT_EINVAL, "--journal needs a file name");
    case JOURNAL_SYNC:
        o->journal_sync = true;
        return 0;
    case READY_FD:
        return take_ready_fd(value, &o->ready_fd, err);
    case HTTP_KEYS:
        o->http_keys = true;
        return 0;
    case VERSION:
        o->action = CT_DAEMON_VERSION;
        return 0;
    case HELP:
        o->action = CT_DAEMON_HELP;
        return 0;
    }
    return ct_err_set(err, CT_EINVAL, "unknown option");
}

int ct_daemon_options_parse(char *const *argv, struct ct_daemon_options *out, struct ct_err *err)
{
    struct ct_daemon_options o = {
        .action = CT_DAEMON_SERVE,
        .port = CT_DEFAULT_STORE_PORT,
        .ready_fd = -1,
    };
    struct ct_option_parser at = {.option_at = option_at, .argv = argv, .next = 1};
    enum ct_option_result result;
    while ((result = ct_option_next(&at)) != CT_OPTION_END) {
        int rc = result == CT_OPTION_FOUND ? take((enum option)at.index, at.value, &o, err)
                                           : ct_option_refuse(&at, result, err);
        if (rc != 0) {
            return rc;
        }
        if (o.action != CT_DAEMON_SERVE) {
            *out = o;
            return 0;
        }
    }
    if (o.journal_sync && o.journal == NULL) {
        return ct_err_set(err, CT_EINVAL, "--journal-sync needs --journal");
    }
    if (argv[at.next] != NULL) {
        return ct_err_set(err, CT_EINVAL, "argument '%s' is not expected", argv[at.next]);
    }
    if (o.num_hosts == 0) {
        o.hosts[o.num_hosts++] = "127.0.0.1";
    }
    *out = o;
    return 0;
}
