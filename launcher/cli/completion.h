/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion scripts for shells, made from the option table.
 */
#ifndef CT_LAUNCHER_CLI_COMPLETION_H
#define CT_LAUNCHER_CLI_COMPLETION_H

#include "common/buf.h"
#include "common/err.h"

enum ct_shell {
    CT_SHELL_NONE,
    CT_SHELL_BASH,
    CT_SHELL_ZSH,
};

/* Appends a script that the shell can source (zsh: also as a file _ctrun in fpath). CT_ENOMEM. */
CT_MUST_CHECK int ct_completion_print(enum ct_shell shell, struct ct_buf *out);

#endif
