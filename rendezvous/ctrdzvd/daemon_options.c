/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/ctrdzvd/daemon_options.h"

#include "common/num.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

const char ct_daemon_help[] =
    "usage: ctrdzvd [--listen ADDR]... [--port N] [--allow NET]... [--open]\n"
    "               [--max-memory SIZE] [--max-connections N]\n"
    "               [--journal FILE [--journal-sync]] [--token-file FILE]\n"
    "               [--ready-fd N] [--http-keys]\n"
    "\n"
    "Serves the key/value store of distributed jobs (PyTorch's TCPStore protocol),\n"
    "and brings the ctrun of each node together.\n"
    "\n"
    "  --listen ADDR   address to listen on; '*' = all; may be repeated (default 127.0.0.1)\n"
    "  --port N        port to listen on; 0 = any free one (default 29500)\n"
    "  --allow NET     serve also clients in this network, such as 10.0.0.0/8; may be\n"
    "                  repeated (default: this machine alone)\n"
    "  --open          serve whoever reaches the port\n"
    "  --max-memory SIZE\n"
    "                  refuse what would take more memory, such as 500M or 4G\n"
    "  --max-connections N\n"
    "                  close further connections at once\n"
    "  --journal FILE  keep the keys in FILE, over a restart of the daemon\n"
    "  --journal-sync  also over a crash of the machine: wait for the disk\n"
    "  --token-file FILE\n"
    "                  the jobs' token: admits every ctrun that has it, and the workers on\n"
    "                  its machine; also from CTRUN_TOKEN\n"
    "  --ready-fd N    write the port and a newline there when ready, then close it\n"
    "  --http-keys     list names and sizes of keys under http://ADDR:PORT/keys\n"
    "  -V, --version   print the version and exit\n"
    "  -h, --help      print this and exit\n";

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

/* Less would not hold one value of the largest size. */
#define MIN_MEMORY_MIB 32

/* A number of bytes, KiB, MiB, GiB or TiB. */
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

static int take(int opt, const char *what, struct ct_daemon_options *o, struct ct_err *err)
{
    switch (opt) {
    case 'l':
        return take_listen(optarg, o, err);
    case 'p':
        return take_port(optarg, &o->port, err);
    case 'm':
        return take_size(optarg, &o->max_memory, err);
    case 'c':
        return take_connections(optarg, &o->max_connections, err);
    case 'a':
        if (ct_access_allow(&o->access, optarg, err) != 0) {
            return ct_err_wrap(err, "--allow");
        }
        return 0;
    case 'o':
        o->access.open = true;
        return 0;
    case 't':
        o->token_file = optarg;
        return optarg[0] != '\0' ? 0 : ct_err_set(err, CT_EINVAL, "--token-file needs a file name");
    case 'j':
        o->journal = optarg;
        return optarg[0] != '\0' ? 0 : ct_err_set(err, CT_EINVAL, "--journal needs a file name");
    case 's':
        o->journal_sync = true;
        return 0;
    case 'r':
        return take_ready_fd(optarg, &o->ready_fd, err);
    case 'k':
        o->http_keys = true;
        return 0;
    case 'v':
    case 'V':
        o->action = CT_DAEMON_VERSION;
        return 0;
    case 'h':
        o->action = CT_DAEMON_HELP;
        return 0;
    case ':':
        return ct_err_set(err, CT_EINVAL, "option '%s' needs a value", what);
    default:
        return ct_err_set(err, CT_EINVAL, "unknown or malformed option '%s'", what);
    }
}

int ct_daemon_options_parse(int argc, char **argv, struct ct_daemon_options *out,
                            struct ct_err *err)
{
    static const struct option table[] = {
        {"listen", required_argument, NULL, 'l'},
        {"port", required_argument, NULL, 'p'},
        {"allow", required_argument, NULL, 'a'},
        {"open", no_argument, NULL, 'o'},
        {"max-memory", required_argument, NULL, 'm'},
        {"max_memory", required_argument, NULL, 'm'},
        {"max-connections", required_argument, NULL, 'c'},
        {"max_connections", required_argument, NULL, 'c'},
        {"token-file", required_argument, NULL, 't'},
        {"token_file", required_argument, NULL, 't'},
        {"journal", required_argument, NULL, 'j'},
        {"journal-sync", no_argument, NULL, 's'},
        {"journal_sync", no_argument, NULL, 's'},
        {"ready-fd", required_argument, NULL, 'r'},
        {"ready_fd", required_argument, NULL, 'r'},
        {"http-keys", no_argument, NULL, 'k'},
        {"http_keys", no_argument, NULL, 'k'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct ct_daemon_options o = {
        .action = CT_DAEMON_SERVE,
        .port = CT_DEFAULT_STORE_PORT,
        .ready_fd = -1,
    };
    opterr = 0; /* we word the errors ourselves */
    int rc = 0;
    while (rc == 0 && o.action == CT_DAEMON_SERVE) {
        const char *what = argv[optind]; /* getopt does not keep the text of what it refuses */
        int opt = getopt_long(argc, argv, "+:hV", table, NULL);
        if (opt == -1) {
            break;
        }
        rc = take(opt, what, &o, err);
    }
    if (rc == 0 && o.action == CT_DAEMON_SERVE && o.journal_sync && o.journal == NULL) {
        rc = ct_err_set(err, CT_EINVAL, "--journal-sync needs --journal");
    }
    if (rc == 0 && o.action == CT_DAEMON_SERVE && optind < argc) {
        rc = ct_err_set(err, CT_EINVAL, "argument '%s' is not expected", argv[optind]);
    }
    if (o.num_hosts == 0) {
        o.hosts[o.num_hosts++] = "127.0.0.1";
    }
    if (rc == 0) {
        *out = o;
    }
    return rc;
}
