/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and loading: what fits is restored bit by bit, what is damaged or of another model is
 * refused.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/recovery/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The temporary file that another process replaces while it is brought to the disk; NULL = none. */
static const char *replaced;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (replaced != NULL) {
        assert_int_equal(unlink(replaced), 0);
        FILE *half = fopen(replaced, "we");
        assert_non_null(half);
        assert_true(fputs("half", half) >= 0);
        assert_int_equal(fclose(half), 0);
        replaced = NULL;
    }
    return __real_fsync(fd);
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
    /* Nothing else is left in the folder. */
    char *temporary = ct_tmpdir_path(dir, "c.safetensors.tmp");
    assert_int_equal(access(temporary, F_OK), -1);
    free(temporary);
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

static void test_a_failed_save_keeps_the_old_file(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "c", "old", 3);
    char *blocker = ct_tmpdir_path(dir, "c.tmp");
    assert_int_equal(mkdir(blocker, 0700), 0);
    struct ct_layout layout = make_layout(7);
    struct ct_state_view saved = make_state(&layout, CT_OPTIMIZER_SGD, 1);
    const struct ct_progress_point point = {.step = 1, .epoch = 1, .seed = 1};
    assert_true(ct_checkpoint_save(path, &saved, &point, NULL) < 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3);
    free_state(&saved);
    free(blocker);
    free(path);
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

/* A process that starts, and one that saves, write nothing into the file of one that saves. */
static void test_the_file_of_another_writer_is_left_alone(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "c");
    char *temporary = ct_tmpdir_write(dir, "c.tmp", "theirs", 6);
    int theirs = open(temporary, O_RDWR | O_CLOEXEC);
    struct ct_layout layout = make_layout(7);
    struct ct_state_view saved = make_state(&layout, CT_OPTIMIZER_SGD, 1);
    const struct ct_progress_point point = {.step = 1, .epoch = 1, .seed = 1};
    struct stat st;
    assert_int_equal(ct_checkpoint_probe(path, NULL), 0);
    expect_text(temporary, "theirs");
    assert_int_equal(ct_checkpoint_save(path, &saved, &point, NULL), 0);
    assert_int_equal(fstat(theirs, &st), 0);
    assert_int_equal(st.st_size, 6);
    assert_int_equal(access(temporary, F_OK), -1);
    assert_int_equal(close(theirs), 0);
    free_state(&saved);
    free(temporary);
    free(path);
    ct_tmpdir_free(dir);
}

static void test_half_a_file_of_another_writer_does_not_replace_the_old_one(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "c", "old", 3);
    char *temporary = ct_tmpdir_path(dir, "c.tmp");
    struct ct_layout layout = make_layout(7);
    struct ct_state_view saved = make_state(&layout, CT_OPTIMIZER_SGD, 1);
    const struct ct_progress_point point = {.step = 1, .epoch = 1, .seed = 1};
    struct ct_err err = {0};
    replaced = temporary;
    assert_int_equal(ct_checkpoint_save(path, &saved, &point, &err), CT_EBUSY);
    assert_non_null(strstr(err.text, "c.tmp: another process"));
    expect_text(path, "old");
    expect_text(temporary, "half");
    free_state(&saved);
    free(temporary);
    free(path);
    ct_tmpdir_free(dir);
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
        cmocka_unit_test(test_the_file_of_another_writer_is_left_alone),
        cmocka_unit_test(test_half_a_file_of_another_writer_does_not_replace_the_old_one),
        cmocka_unit_test(test_saving_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
