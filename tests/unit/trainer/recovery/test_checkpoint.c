/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and loading: what fits is restored bit by bit, what is damaged or of another model is
 * refused.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/recovery/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What happens once while a file is brought to the disk, or before it gets its name; NULL = nothing
 * does. */
static void (*on_fsync)(void), (*on_rename)(void);
static bool disk_fails;

static void happen(void (**what)(void))
{
    void (*now)(void) = *what;
    *what = NULL;
    if (now != NULL) {
        now();
    }
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    happen(&on_fsync);
    if (disk_fails) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    happen(&on_rename);
    return __real_rename(from, to);
}

static struct ct_layout make_layout(size_t hidden)
{
    struct ct_layout layout;
    const struct ct_hidden sizes = {.count = 1, .size = {hidden}};
    assert_int_equal(ct_layout_init(&layout, 5, &sizes, 3, NULL), 0);
    return layout;
}

/* Parameters and two states with different numbers; gaps of the layout stay 0. */
static struct ct_state_view make_state(const struct ct_layout *layout,
                                       enum ct_optimizer_kind optimizer, uint64_t seed)
{
    struct ct_state_view view = {.layout = layout, .optimizer = optimizer};
    view.params = calloc(layout->count, sizeof(float));
    ct_layout_draw(layout, seed, view.params);
    for (size_t i = 0; ct_optimizer_state_name(optimizer, i) != NULL; i++) {
        view.state[i] = calloc(layout->count, sizeof(float));
        ct_layout_draw(layout, seed + i + 1, view.state[i]);
    }
    return view;
}

static void free_state(struct ct_state_view *view)
{
    free(view->params);
    free(view->state[0]);
    free(view->state[1]);
}

static int count_files(const char *dir)
{
    int count = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    assert_int_equal(closedir(d), 0);
    return count;
}

static void check_round_trip(enum ct_optimizer_kind optimizer)
{
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "c.safetensors");
    struct ct_layout layout = make_layout(7);
    struct ct_state_view saved = make_state(&layout, optimizer, 1);
    struct ct_state_view loaded = make_state(&layout, optimizer, 100);
    const struct ct_progress_point point = {
        .step = 123456789012, .epoch = 7, .seed = INT64_MAX, .batch = 11, .batch_size = 256};
    struct ct_progress_point found = {0};
    struct ct_safetensors file;
    struct ct_err err = {0};
    if (ct_checkpoint_probe(path, &err) != 0 ||
        ct_checkpoint_save(path, &saved, &point, &err) != 0 ||
        ct_checkpoint_open(path, &layout, optimizer, &file, &found, &err) != 0 ||
        ct_checkpoint_load(&file, &loaded, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_true(found.step == point.step && found.epoch == 7 && found.seed == point.seed);
    assert_true(found.batch == 11 && found.batch_size == 256);
    assert_memory_equal(saved.params, loaded.params, layout.count * sizeof(float));
    for (size_t i = 0; ct_optimizer_state_name(optimizer, i) != NULL; i++) {
        assert_memory_equal(saved.state[i], loaded.state[i], layout.count * sizeof(float));
    }
    assert_non_null(ct_safetensors_find(&file, "layers.1.bias"));
    assert_non_null(ct_safetensors_find(&file, optimizer == CT_OPTIMIZER_SGD
                                                   ? "optim.momentum.layers.0.weight"
                                                   : "optim.exp_avg_sq.layers.0.weight"));
    assert_int_equal(count_files(dir), 1);
    ct_safetensors_fini(&file);
    free_state(&saved);
    free_state(&loaded);
    free(path);
    ct_tmpdir_free(dir);
}

static void test_a_checkpoint_gives_back_what_was_saved(void **state)
{
    (void)state;
    check_round_trip(CT_OPTIMIZER_SGD);
    check_round_trip(CT_OPTIMIZER_ADAMW);
}

static void expect_refused(const char *path, const struct ct_layout *layout,
                           enum ct_optimizer_kind optimizer, const char *why)
{
    struct ct_safetensors file;
    struct ct_progress_point point;
    struct ct_err err = {0};
    int rc = ct_checkpoint_open(path, layout, optimizer, &file, &point, &err);
    if (rc != CT_EINVAL || strstr(err.text, why) == NULL || strstr(err.text, path) == NULL) {
        fail_msg("%d '%s', expected '%s'", rc, err.text, why);
    }
}

static void test_another_model_is_refused(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "c");
    struct ct_layout layout = make_layout(7), wider = make_layout(8), deeper, shallower;
    struct ct_hidden sizes = {.count = 2, .size = {7, 3}};
    assert_int_equal(ct_layout_init(&deeper, 5, &sizes, 3, NULL), 0);
    sizes = (struct ct_hidden){.count = 0};
    assert_int_equal(ct_layout_init(&shallower, 5, &sizes, 7, NULL), 0);
    struct ct_state_view saved = make_state(&layout, CT_OPTIMIZER_SGD, 1);
    const struct ct_progress_point point = {.step = 1, .epoch = 1, .seed = 1};
    assert_int_equal(ct_checkpoint_save(path, &saved, &point, NULL), 0);
    expect_refused(path, &wider, CT_OPTIMIZER_SGD,
                   "another shape: tensor layers.0.weight is [7, 5] there but [8, 5]");
    expect_refused(path, &deeper, CT_OPTIMIZER_SGD, "holds no tensor layers.2.weight");
    expect_refused(path, &shallower, CT_OPTIMIZER_SGD, "it holds 8 tensors, this model has 4");
    expect_refused(path, &layout, CT_OPTIMIZER_ADAMW,
                   "was trained with --optimizer sgd, not adamw");
    free_state(&saved);
    free(path);
    ct_tmpdir_free(dir);
}

static void test_metadata_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *header, *why;
    } cases[] = {
        {"{}", "name no optimizer"},
        {"{\"__metadata__\":{\"optimizer\":\"rprop\"}}", "--optimizer rprop, not sgd"},
    };
    struct ct_layout layout = make_layout(7);
    char *dir = ct_tmpdir_new();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char bytes[256] = {0};
        size_t len = strlen(cases[i].header);
        bytes[0] = (char)len;
        memcpy(bytes + 8, cases[i].header, len);
        char *path = ct_tmpdir_write(dir, "c", bytes, 8 + len);
        expect_refused(path, &layout, CT_OPTIMIZER_SGD, cases[i].why);
        free(path);
    }
    ct_tmpdir_free(dir);
}

static void test_unwritable_paths_are_found_early(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    struct ct_err err = {0};
    assert_int_equal(ct_checkpoint_probe("/no/such/folder/c", &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "cannot write checkpoint /no/such/folder/c"));
    assert_int_equal(ct_checkpoint_probe(dir, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "it is a folder"));
    assert_int_equal(ct_checkpoint_probe("/dev/null", &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "not a regular file"));
    ct_tmpdir_free(dir);
}

static void expect_text(const char *path, const char *want)
{
    char text[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof text - 1), strlen(want));
    assert_string_equal(text, want);
    assert_int_equal(close(fd), 0);
}

static int save_small(const char *path, struct ct_err *err)
{
    struct ct_layout layout = make_layout(7);
    struct ct_state_view saved = make_state(&layout, CT_OPTIMIZER_SGD, 1);
    const struct ct_progress_point point = {.step = 1, .epoch = 1, .seed = 1};
    int rc = ct_checkpoint_save(path, &saved, &point, err);
    free_state(&saved);
    return rc;
}

static void test_a_failed_save_keeps_the_old_file(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "c", "old", 3);
    disk_fails = true;
    int rc = save_small(path, NULL);
    disk_fails = false;
    assert_int_equal(rc, CT_EIO);
    expect_text(path, "old");
    assert_int_equal(count_files(dir), 1);
    free(path);
    ct_tmpdir_free(dir);
}

/* Files that killed writers have left do not fill the disk. What has another name stays. */
static void test_a_save_removes_what_killed_writers_have_left(void **state)
{
    static const char *const names[] = {
        "c.0123456789abcdef.tmp", /* of this checkpoint */
        "c.fedcba9876543210.tmp", "b.0123456789abcdef.tmp", "cc.0123456789abcdef.tmp",
        "c.0123456789abcdeg.tmp", "c.123456789abcdef.tmp",  "c.tmp",
        ".0123456789abcdef.tmp",
    };
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "c");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        free(ct_tmpdir_write(dir, names[i], "half", 4));
    }
    assert_int_equal(ct_checkpoint_probe(path, NULL), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *name = ct_tmpdir_path(dir, names[i]);
        expect_text(name, "half"); /* perhaps a process still writes it */
        free(name);
    }
    assert_int_equal(save_small(path, NULL), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *name = ct_tmpdir_path(dir, names[i]);
        assert_int_equal(access(name, F_OK), i < 2 ? -1 : 0);
        free(name);
    }
    free(path);
    ct_tmpdir_free(dir);
}

static char *contested;

/* Another process begins to save to the same name, and is killed at its first byte. */
static void begin_elsewhere(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0};
        if (setrlimit(RLIMIT_CORE, &none) == 0 && setrlimit(RLIMIT_FSIZE, &none) == 0) {
            (void)save_small(contested, NULL);
        }
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
}

/* The one that began first had looked at the name of its file before it renamed what was there
 * then: the empty file of the other one. */
static void test_half_a_file_of_another_writer_does_not_replace_the_old_one(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        char *dir = ct_tmpdir_new();
        struct ct_err err = {0};
        contested = ct_tmpdir_write(dir, "c", "old", 3);
        *(late != 0 ? &on_rename : &on_fsync) = begin_elsewhere;
        assert_int_equal(save_small(contested, &err), CT_EBUSY);
        assert_non_null(strstr(err.text, ".tmp: another process has begun to write it, too"));
        expect_text(contested, "old");
        assert_int_equal(count_files(dir), 2);
        assert_int_equal(save_small(contested, NULL), 0);
        assert_int_equal(count_files(dir), 1);
        free(contested);
        ct_tmpdir_free(dir);
    }
}

struct save_case {
    char *path;
    struct ct_state_view view;
};

static int save_body(void *data)
{
    struct save_case *c = data;
    const struct ct_progress_point point = {.step = 1, .epoch = 1, .seed = 1};
    int rc = ct_checkpoint_probe(c->path, NULL);
    return rc == 0 ? ct_checkpoint_save(c->path, &c->view, &point, NULL) : rc;
}

static void test_saving_survives_lack_of_memory(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    struct ct_layout layout = make_layout(7);
    struct save_case c = {ct_tmpdir_path(dir, "c"), make_state(&layout, CT_OPTIMIZER_ADAMW, 1)};
    assert_true(ct_fault_sweep(save_body, &c, 0) >= 3);
    free_state(&c.view);
    free(c.path);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_checkpoint_gives_back_what_was_saved),
        cmocka_unit_test(test_another_model_is_refused),
        cmocka_unit_test(test_metadata_are_checked),
        cmocka_unit_test(test_unwritable_paths_are_found_early),
        cmocka_unit_test(test_a_failed_save_keeps_the_old_file),
        cmocka_unit_test(test_a_save_removes_what_killed_writers_have_left),
        cmocka_unit_test(test_half_a_file_of_another_writer_does_not_replace_the_old_one),
        cmocka_unit_test(test_saving_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
