/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which file is run for what the user calls the program, and that a failure names it and
 * says what may help.
 */
#include "tests/lib/ct_test.h"

#include "launcher/worker/command.h"
#include "tests/lib/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* bin/   tool ours dir/      path/  tool other python3 noexec(0644)      ./  here script.py
 * libexec/ctrun/   tool train */
struct rig {
    char *dir, *own, *path, *cwd;
    char path_var[4096], python_var[4096];
    char *env[3];
};

static void add_file(const char *dir, const char *name, mode_t mode)
{
    char *path = ct_tmpdir_write(dir, name, "x", 1);
    assert_int_equal(chmod(path, mode), 0);
    free(path);
}

static char *add_dir(const char *dir, const char *name)
{
    char *path = ct_tmpdir_path(dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->dir = ct_tmpdir_new();
    rig->own = add_dir(rig->dir, "bin");
    rig->path = add_dir(rig->dir, "path");
    rig->cwd = add_dir(rig->dir, "cwd");
    add_file(rig->own, "tool", 0755);
    add_file(rig->own, "ours", 0755);
    char *above = add_dir(rig->dir, "libexec"), *libexec = add_dir(above, "ctrun");
    add_file(libexec, "tool", 0755);
    add_file(libexec, "train", 0755);
    free(libexec);
    free(above);
    free(add_dir(rig->own, "other"));
    add_file(rig->path, "tool", 0755);
    add_file(rig->path, "other", 0755);
    add_file(rig->path, "python3", 0755);
    add_file(rig->path, "noexec", 0644);
    add_file(rig->cwd, "here", 0755);
    add_file(rig->cwd, "script.py", 0644);
    add_file(rig->cwd, "plain", 0644);
    char *windows = ct_tmpdir_write(rig->cwd, "windows", "#!/bin/sh\r\ntrue\r\n", 17);
    assert_int_equal(chmod(windows, 0755), 0);
    free(windows);
    (void)snprintf(rig->path_var, sizeof(rig->path_var), "PATH=/nonexistent:%s", rig->path);
    rig->env[0] = rig->path_var;
    assert_int_equal(chdir(rig->cwd), 0);
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(chdir("/"), 0);
    free(rig->own);
    free(rig->path);
    free(rig->cwd);
    ct_tmpdir_free(rig->dir);
    free(rig);
    return 0;
}

/* The code, and "path | argv0 argv1 ..." with the rig's folder cut off, or the error's text. */
static int resolve(struct rig *rig, const struct ct_options *how, const char *name, char out[1024])
{
    char *const words[] = {(char *)name, (char *)"arg", NULL};
    struct ct_options options = *how;
    struct ct_command command = {0};
    struct ct_err err = {0};
    options.command = words;
    int rc = ct_command_resolve(&options, rig->env, rig->own, &command, &err);
    if (rc != 0) {
        assert_null(command.path);
        (void)snprintf(out, 1024, "%s", err.text);
        return rc;
    }
    size_t cut = strlen(rig->dir);
    (void)snprintf(out, 1024, "%s |", command.path + (command.path[0] == '/' ? cut : 0));
    for (size_t i = 0; i < command.argv.count; i++) {
        const char *arg = command.argv.list[i];
        size_t used = strlen(out);
        (void)snprintf(out + used, 1024 - used, " %s", arg + (arg[0] == '/' ? cut : 0));
    }
    assert_null(command.argv.list[command.argv.count]);
    ct_command_fini(&command);
    return 0;
}

static const struct ct_options plain;

static void looks_in_path_then_for_its_own(void **state)
{
    struct rig *rig = *state;
    char out[1024];
    assert_int_equal(resolve(rig, &plain, "tool", out), 0);
    assert_string_equal(out, "/path/tool | tool arg");
    assert_int_equal(resolve(rig, &plain, "ours", out), 0);
    assert_string_equal(out, "/bin/ours | ours arg");
    assert_int_equal(resolve(rig, &plain, "train", out), 0);
    assert_string_equal(out, "/libexec/ctrun/train | train arg");
    add_file(rig->path, "train", 0644); /* is nothing that could run */
    assert_int_equal(resolve(rig, &plain, "train", out), 0);
    assert_string_equal(out, "/libexec/ctrun/train | train arg");
    add_file(rig->path, "train", 0755);
    assert_int_equal(resolve(rig, &plain, "train", out), 0);
    assert_string_equal(out, "/path/train | train arg");
    assert_int_equal(resolve(rig, &plain, "other", out), 0);
    assert_string_equal(out, "/path/other | other arg");
    assert_int_equal(resolve(rig, &plain, "./here", out), 0);
    assert_string_equal(out, "./here | ./here arg");
}

static void path_alone_counts_where_the_own_folder_is_unknown(void **state)
{
    struct rig *rig = *state;
    char out[1024], *own = rig->own;
    rig->own = NULL;
    assert_int_equal(resolve(rig, &plain, "tool", out), 0);
    assert_string_equal(out, "/path/tool | tool arg");
    assert_int_equal(resolve(rig, &plain, "train", out), CT_ENOENT);
    assert_non_null(strstr(out, "not found in PATH; the wheel has no trainer"));
    const char *const dashes[] = {"\u2013max-restarts", "\u2014n", "\u2212n"};
    for (size_t i = 0; i < sizeof(dashes) / sizeof(dashes[0]); i++) {
        assert_int_equal(resolve(rig, &plain, dashes[i], out), CT_ENOENT);
        assert_non_null(
            strstr(out, "its first character is a printed dash: write an option with --"));
    }
    assert_int_equal(resolve(rig, &plain, "\u2026x", out), CT_ENOENT);
    assert_null(strstr(out, "dash"));
    rig->own = own;
}

static void an_empty_path_entry_is_the_current_folder(void **state)
{
    struct rig *rig = *state;
    char out[1024];
    (void)snprintf(rig->path_var, sizeof(rig->path_var), "PATH=:/nonexistent");
    assert_int_equal(resolve(rig, &plain, "here", out), 0);
    assert_string_equal(out, "./here | here arg");
}

static void scripts_and_modules_run_under_python(void **state)
{
    struct rig *rig = *state;
    struct ct_options module = {.module = true};
    char out[1024];
    assert_int_equal(resolve(rig, &plain, "script.py", out), 0);
    assert_string_equal(out, "/path/python3 | /path/python3 -u script.py arg");
    assert_int_equal(resolve(rig, &module, "pkg.mod", out), 0);
    assert_string_equal(out, "/path/python3 | /path/python3 -u -m pkg.mod arg");
    (void)snprintf(rig->python_var, sizeof(rig->python_var), "PYTHON_EXEC=%s/bin/tool", rig->dir);
    rig->env[1] = rig->python_var;
    assert_int_equal(resolve(rig, &plain, "script.py", out), 0);
    assert_string_equal(out, "/bin/tool | /bin/tool -u script.py arg");
}

static void no_python_executes_a_script_itself(void **state)
{
    struct rig *rig = *state;
    struct ct_options no_python = {.no_python = true};
    char out[1024];
    assert_int_equal(resolve(rig, &no_python, "./script.py", out), CT_EPERM);
    add_file(rig->cwd, "script.py", 0755);
    assert_int_equal(resolve(rig, &no_python, "./script.py", out), 0);
    assert_string_equal(out, "./script.py | ./script.py arg");
}

static void failures_name_the_program(void **state)
{
    static const struct {
        const char *name;
        int code;
        const char *text;
    } rows[] = {
        {"absent", CT_ENOENT, "absent: not found"},
        {"./absent", CT_ENOENT, "./absent: no such"},
        {"absent.py", CT_ENOENT, "absent.py: no"},
        {"noexec", CT_EPERM, "noexec: not an exec"},
        {"./", CT_EPERM, "./: is a folder"},
        {"python script.py", CT_ENOENT, "script.py: no such file; if that is a program with its"},
        {"tool --steps 3", CT_ENOENT, "own programs; if that is a program with its arguments"},
        {"./tool --steps 3", CT_ENOENT, "leave out the quotes around them"},
        {"here", CT_ENOENT, "write ./ in front"},
        {"./plain", CT_EPERM, "./plain: has no execute permission (chmod +x ./plain)"},
        {"./windows", CT_ENOENT, "./windows: its first line ends in a carriage return"},
    };
    struct rig *rig = *state;
    char out[1024];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(resolve(rig, &plain, rows[i].name, out), rows[i].code);
        if (strstr(out, rows[i].text) == NULL) {
            fail_msg("%s: '%s'", rows[i].name, out);
        }
    }
    (void)snprintf(rig->python_var, sizeof(rig->python_var), "PYTHON_EXEC=/absent/python");
    rig->env[1] = rig->python_var;
    assert_int_equal(resolve(rig, &plain, "script.py", out), CT_ENOENT);
    assert_non_null(strstr(out, "script.py"));
    assert_non_null(strstr(out, "/absent/python"));
    (void)snprintf(rig->python_var, sizeof(rig->python_var), "PYTHON_EXEC=p");
    assert_int_equal(resolve(rig, &plain, "script.py", out), CT_ENOENT);
    assert_non_null(strstr(out, "PYTHON_EXEC"));
}

static void a_program_that_is_refused_is_not_given(void **state)
{
    struct rig *rig = *state;
    char *path = NULL;
    ct_fault_begin(-1);
    assert_int_equal(ct_command_find("./windows", rig->env, &path, NULL), CT_ENOENT);
    assert_null(path);
    assert_int_equal(ct_fault_end(), 0);
}

static int sweep_body(void *data)
{
    struct rig *rig = data;
    struct ct_options module = {.module = true};
    char *const words[] = {(char *)"pkg", NULL};
    struct ct_command command = {0};
    module.command = words;
    int rc = ct_command_resolve(&module, rig->env, rig->own, &command, NULL);
    ct_command_fini(&command);
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    assert_true(ct_fault_sweep(sweep_body, *state, 0) >= 3);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(looks_in_path_then_for_its_own),
        CASE(path_alone_counts_where_the_own_folder_is_unknown),
        CASE(an_empty_path_entry_is_the_current_folder),
        CASE(scripts_and_modules_run_under_python),
        CASE(no_python_executes_a_script_itself),
        CASE(failures_name_the_program),
        CASE(a_program_that_is_refused_is_not_given),
        CASE(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
