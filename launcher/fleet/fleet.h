/* SPDX-License-Identifier: Apache-2.0
 *
 * The command for one machine of --hosts: a launch agent (ssh, or what --launch-agent says) with
 * one command line for the shell on that machine. Pure.
 *
 *     ssh HOST "cd '/where/we/are' && exec env 'NCCL_DEBUG=INFO' '/usr/bin/ctrun' OPTIONS..."
 *
 * The ctrun on that machine gets the options that were given here, and after them its node rank and
 * the store's address (the last one wins). The job's token is sent through standard input, because
 * ps(1) shows the command line.
 */
#ifndef CT_LAUNCHER_FLEET_FLEET_H
#define CT_LAUNCHER_FLEET_FLEET_H

#include "common/buf.h"
#include "common/err.h"
#include "launcher/fleet/hosts.h"
#include "launcher/util/strlist.h"

#include <stdbool.h>
#include <stdint.h>

/* What the commands for all machines are made from. Everything is borrowed. */
struct ct_fleet_spec {
    const struct ct_hosts *hosts;
    const char *agent;    /* --launch-agent: words, separated by blanks */
    const char *ctrun;    /* path of the program, the same everywhere */
    const char *folder;   /* working directory */
    char *const *options; /* argv[1] and what follows, up to the program */
    int num_options;      /* words in `options` */
    char *const *command; /* the program and its arguments, NULL-terminated */
    char *const *env;     /* ours; ct_fleet_exports() says which variables the machines get */
    const char *address;  /* of the store, as those machines reach it */
    uint16_t port;
    const char *run_id;
    const char *job_id; /* of a detached job, which the machine of node rank 0 hosts; NULL = of
                           another one */
    bool nnodes_given;  /* the options have --nnodes, which is kept */
};

/* Is this variable ("NAME=value") sent to the other machines? The variables of NCCL, OpenMP,
 * Python, PyTorch and ctrun are, except the token. */
bool ct_fleet_exports(const char *variable);

/* Is this host the machine we are on, so that no ssh is needed? `own` is our host name. */
bool ct_fleet_is_here(const char *host, const char *own);

/* Appends `word` in quotes that a POSIX shell takes off again. CT_ENOMEM. */
void ct_fleet_quote(struct ct_buf *out, const char *word);

/* The command line for the shell on machine `index`. CT_ENOMEM. */
CT_MUST_CHECK int ct_fleet_command(const struct ct_fleet_spec *spec, int index, struct ct_buf *out);

/* argv of the launch agent for machine `index`; `command` (borrowed) is its last word. `here`: the
 * shell itself instead. Gives *out, which starts empty, closed. CT_EINVAL when --launch-agent is
 * blank; CT_ENOMEM. */
CT_MUST_CHECK int ct_fleet_argv(const struct ct_fleet_spec *spec, int index, bool here,
                                const char *command, struct ct_strlist *out, struct ct_err *err);

#endif
