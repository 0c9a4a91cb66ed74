/* SPDX-License-Identifier: Apache-2.0
 *
 * The file is only checked here. It may change before the exec, and only the kernel knows the
 * interpreter of a script. Therefore the error of the exec itself is reported, too (spawn.h).
 */
#include "launcher/worker/command.h"

#include "common/alloc.h"
#include "launcher/util/environ.h"
#include "launcher/worker/arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where execvp(3) looks when PATH is unset. */
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

void ct_command_fini(struct ct_command *command)
{
    if (command == NULL) {
        return;
    }
    ct_free(command->path);
    ct_strlist_fini(&command->argv);
    *command = (struct ct_command){0};
}

/* 0, or why this file cannot be used in `mode` (X_OK or R_OK): CT_ENOENT or CT_EPERM. */
static int probe(const char *path, int mode)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return errno == EACCES ? CT_EPERM : CT_ENOENT;
    }
    return S_ISREG(st.st_mode) && faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0 ? 0 : CT_EPERM;
}

/* Gives *out = dir/name if it may be used in `mode`. `dir` need not be terminated. */
static int probe_in(const char *dir, size_t dir_len, const char *name, int mode, char **out)
{
    char *path =
        dir_len == 0 ? ct_asprintf("./%s", name) : ct_asprintf("%.*s/%s", (int)dir_len, dir, name);
    if (path == NULL) {
        return CT_ENOMEM;
    }
    int rc = probe(path, mode);
    if (rc != 0) {
        ct_free(path);
        return rc;
    }
    *out = path;
    return 0;
}

/* Takes the first executable file, as a shell does. Returns CT_EPERM if there are only files that
 * are not executable. */
static int search_path(const char *path_list, const char *name, char **out)
{
    int worst = CT_ENOENT;
    for (const char *p = path_list;;) {
        size_t len = strcspn(p, ":");
        int rc = probe_in(p, len, name, X_OK, out);
        if (rc == 0 || rc == CT_ENOMEM) {
            return rc;
        }
        worst = rc == CT_EPERM ? CT_EPERM : worst;
        if (p[len] == '\0') {
            return worst;
        }
        p += len + 1;
    }
}

/* Looks for ctrun's own files: beside ctrun in a build folder, in CT_LIBEXEC_DIR when installed.
 * A relative CT_LIBEXEC_DIR begins at ctrun's folder, so that an installation can be moved. */
static int search_own(const char *own_dir, const char *name, int mode, char **out)
{
    int rc = probe_in(own_dir, strlen(own_dir), name, mode, out);
    if (rc == 0 || rc == CT_ENOMEM) {
        return rc;
    }
    const char *libexec = CT_LIBEXEC_DIR;
    size_t len = libexec[0] == '/' ? 0 : strlen(own_dir);
    for (; strncmp(libexec, "../", 3) == 0; libexec += 3) {
        while (len > 0 && own_dir[--len] != '/') {
        }
    }
    char *dir = ct_asprintf("%.*s%s%s", (int)len, own_dir, libexec[0] == '/' ? "" : "/", libexec);
    if (dir == NULL) {
        return CT_ENOMEM;
    }
    rc = probe_in(dir, strlen(dir), name, mode, out);
    ct_free(dir);
    return rc;
}

/* PATH comes first, so that ctrun's `train` does not replace a program of that name of the user. */
static int search(const char *own_dir, const char *path_list, const char *name, char **out)
{
    int rc = search_path(path_list, name, out);
    if (rc == 0 || rc == CT_ENOMEM || own_dir == NULL) {
        return rc;
    }
    int own = search_own(own_dir, name, X_OK, out);
    return own == 0 || own == CT_ENOMEM ? own : rc;
}

/* "python x.py" in quotes is one word, and no program has that name. */
static const char *quotes_hint(const char *name)
{
    return strpbrk(name, " \t") != NULL
               ? "; if that is a program with its arguments, leave out the quotes around them"
               : "";
}

/* The dashes U+2010 to U+2015 and U+2212 in UTF-8, which word processors and web pages make of
 * "--". */
static bool begins_with_printed_dash(const char *name)
{
    const unsigned char *n = (const unsigned char *)name;
    return n[0] == 0xe2 &&
           ((n[1] == 0x80 && n[2] >= 0x90 && n[2] <= 0x95) || (n[1] == 0x88 && n[2] == 0x92));
}

/* What to do about a name that no folder has. */
static const char *absence_hint(const char *name)
{
    if (begins_with_printed_dash(name)) {
        return "; its first character is a printed dash: write an option with -- from the keyboard";
    }
    if (access(name, F_OK) == 0) {
        return " (to run the one here, write ./ in front)";
    }
    return strcmp(name, "train") == 0
               ? "; the wheel has no trainer, and on Debian it is a package of its own, ctrun-train"
               : quotes_hint(name);
}

/* Why a file that was found cannot be executed. */
static int refuse(const char *name, struct ct_err *err)
{
    struct stat st;
    bool seen = strchr(name, '/') != NULL && stat(name, &st) == 0;
    if (seen && S_ISDIR(st.st_mode)) {
        return ct_err_set(err, CT_EPERM, "%s: is a folder", name);
    }
    if (seen && S_ISREG(st.st_mode) && (st.st_mode & 0111) == 0) {
        return ct_err_set(err, CT_EPERM, "%s: has no execute permission (chmod +x %s)", name, name);
    }
    return ct_err_set(err, CT_EPERM, "%s: not an executable file", name);
}

/* Refuses "#!/bin/sh\r": to the kernel the carriage return is a part of the interpreter's name. */
static int check_first_line(const char *path, const char *name, struct ct_err *err)
{
    char line[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, line, sizeof(line)) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    const char *end = len > 2 ? memchr(line, '\n', (size_t)len) : NULL;
    if (end == NULL || memcmp(line, "#!", 2) != 0 || end[-1] != '\r') {
        return 0;
    }
    return ct_err_set(err, CT_ENOENT,
                      "%s: its first line ends in a carriage return (Windows line ends)", name);
}

static int resolve_program(const char *name, char *const *env, const char *own_dir, char **out,
                           struct ct_err *err)
{
    const char *path_list = ct_environ_get(env, "PATH");
    char *path = NULL;
    int rc;
    if (strchr(name, '/') != NULL) {
        rc = probe(name, X_OK);
        if (rc == 0) {
            path = ct_strdup(name);
            rc = path != NULL ? 0 : CT_ENOMEM;
        }
        if (rc == CT_ENOENT) {
            return ct_err_set(err, rc, "%s: no such file%s", name, quotes_hint(name));
        }
    } else {
        rc = search(own_dir, path_list != NULL ? path_list : DEFAULT_PATH, name, &path);
        if (rc == CT_ENOENT) {
            return ct_err_set(err, rc, "%s: not found in PATH%s%s", name,
                              own_dir != NULL ? ", nor among ctrun's own programs" : "",
                              absence_hint(name));
        }
    }
    if (rc == CT_EPERM) {
        return refuse(name, err);
    }
    if (rc != 0) {
        return ct_err_set(err, rc, "%s: out of memory", name);
    }
    rc = check_first_line(path, name, err);
    if (rc != 0) {
        ct_free(path);
        return rc;
    }
    *out = path;
    return 0;
}

int ct_command_find_own(const char *own_dir, const char *name, char **out)
{
    return search_own(own_dir, name, R_OK, out);
}

int ct_command_find(const char *name, char *const *env, char **out, struct ct_err *err)
{
    return resolve_program(name, env, NULL, out, err);
}

static bool ends_in_py(const char *name)
{
    size_t len = strlen(name);
    return len > 3 && strcmp(name + len - 3, ".py") == 0;
}

/* The interpreter would report it, too, but once per worker and with exit code 2. */
static int check_script(const char *script, struct ct_err *err)
{
    switch (probe(script, R_OK)) {
    case 0:
        return 0;
    case CT_ENOENT:
        return ct_err_set(err, CT_ENOENT, "%s: no such file%s", script, quotes_hint(script));
    default:
        return ct_err_set(err, CT_EPERM, "%s: not a readable file", script);
    }
}

static int resolve_python(const struct ct_options *options, char *const *env,
                          struct ct_command *out, struct ct_err *err)
{
    const char *python = ct_environ_get(env, "PYTHON_EXEC");
    bool named = python != NULL && python[0] != '\0';
    int rc = options->module ? 0 : check_script(options->command[0], err);
    if (rc != 0) {
        return rc;
    }
    python = named ? python : "python3";
    rc = resolve_program(python, env, NULL, &out->path, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "cannot run %s with %s", options->command[0],
                          named ? "PYTHON_EXEC" : "Python");
        return rc;
    }
    /* argv[0] is the full path, by which the interpreter finds its virtual environment. */
    bool ok = ct_strlist_borrow(&out->argv, out->path) == 0 &&
              ct_strlist_borrow(&out->argv, "-u") == 0 &&
              (!options->module || ct_strlist_borrow(&out->argv, "-m") == 0);
    return ok ? 0 : ct_err_set(err, CT_ENOMEM, "%s: out of memory", options->command[0]);
}

int ct_command_resolve(const struct ct_options *options, char *const *env, const char *own_dir,
                       struct ct_command *out, struct ct_err *err)
{
    struct ct_command command = {0};
    const char *program = options->command[0];
    int bad = ct_arguments_check(options->command, &command.ports, err);
    if (bad != 0) {
        return bad;
    }
    bool python = !options->no_python && (options->module || ends_in_py(program));
    int rc = python ? resolve_python(options, env, &command, err)
                    : resolve_program(program, env, own_dir, &command.path, err);
    if (rc != 0) {
        goto fail;
    }
    for (char *const *word = options->command; rc == 0 && *word != NULL; word++) {
        rc = ct_strlist_borrow(&command.argv, *word);
    }
    if (rc != 0 || ct_strlist_close(&command.argv) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "%s: out of memory", program);
        goto fail;
    }
    command.python = python;
    *out = command;
    return 0;

fail:
    ct_command_fini(&command);
    return rc;
}
