/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/daemon_options.h"

#include "common/num.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>

const char ct_daemon_help[] =
    "usage: ctrdzvd [--listen ADDR] [--port N] [--allow NET]... [--open]\n"
    "               [--journal FILE [--journal-sync]] [--ready-fd N] [--http-keys]\n"
    "\n"
    "Serves the key/value store of distributed jobs (PyTorch's TCPStore protocol).\n"
    "\n"
    "  --listen ADDR   address to listen on; '*' = all (default 127.0.0.1)\n"
    "  --port N        port to listen on; 0 = any free one (default 29500)\n"
    "  --allow NET     serve also clients in this network, such as 10.0.0.0/8; may be\n"
    "                  repeated (default: this machine alone)\n"
    "  --open          serve whoever reaches the port\n"
    "  --journal FILE  keep the keys in FILE, over a restart of the daemon\n"
    "  --journal-sync  also over a crash of the machine: wait for the disk\n"
    "  --ready-fd N    write the port and a newline there when ready, then close it\n"
    "  --http-keys     list names and sizes of keys under http://ADDR:PORT/keys\n"
    "  --version       print the version and exit\n"
    "  --help          print this and exit\n";

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

static int take(int opt, const char *what, struct ct_daemon_options *o, struct ct_err *err)
{
    switch (opt) {
    case 'l':
        o->host = optarg;
        return optarg[0] != '\0' ? 0 : ct_err_set(err, CT_EINVAL, "--listen needs an address");
    case 'p':
        return take_port(optarg, &o->port, err);
    case 'a':
        if (ct_access_allow(&o->access, optarg, err) != 0) {
            return ct_err_wrap(err, "--allow");
        }
        return 0;
    case 'o':
        o->access.open = true;
        return 0;
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
        {"listen", required_argument, NULL, 'l'},   {"port", required_argument, NULL, 'p'},
        {"allow", required_argument, NULL, 'a'},    {"open", no_argument, NULL, 'o'},
        {"journal", required_argument, NULL, 'j'},  {"journal-sync", no_argument, NULL, 's'},
        {"journal_sync", no_argument, NULL, 's'},   {"ready-fd", required_argument, NULL, 'r'},
        {"ready_fd", required_argument, NULL, 'r'}, {"http-keys", no_argument, NULL, 'k'},
        {"http_keys", no_argument, NULL, 'k'},      {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct ct_daemon_options o = {
        .action = CT_DAEMON_SERVE,
        .host = "127.0.0.1",
        .port = CT_DEFAULT_STORE_PORT,
        .ready_fd = -1,
    };
    opterr = 0; /* we word the errors ourselves */
    int rc = 0;
    while (rc == 0 && o.action == CT_DAEMON_SERVE) {
        const char *what = argv[optind]; /* getopt does not keep the text of what it refuses */
        int opt = getopt_long(argc, argv, "+:", table, NULL);
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
    if (rc == 0) {
        *out = o;
    }
    return rc;
}
