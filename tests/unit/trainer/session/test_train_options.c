/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of train: values, limits, defaults and messages.
 */
#include "tests/lib/ct_test.h"
#include "trainer/session/train_options.h"

#define ARGS_MAX 10

static int parse(const char *const args[], struct ct_train_options *out, struct ct_err *err)
{
    char *argv[ARGS_MAX + 2] = {(char *)"train"};
    int argc = 1;
    while (args[argc - 1] != NULL) {
        argv[argc] = (char *)args[argc - 1];
        argc++;
    }
    return ct_train_options_parse(argc, argv, out, err);
}

/* 70 letters and what is shown of them. */
#define A10 "aaaaaaaaaa"
#define B10 "bbbbbbbbbb"
#define LONG_WORD "--" A10 A10 A10 A10 A10 A10 A10
#define AAAA A10 A10 A10 A10 A10 A10 "aaaa..."
#define LONG_ARGUMENT B10 B10 B10 B10 B10 B10 B10
#define BBBB B10 B10 B10 B10 B10 B10 "bbbb..."

static void test_defaults_hold_without_options(void **state)
{
    (void)state;
    struct ct_train_options o;
    assert_int_equal(parse((const char *const[]){NULL}, &o, NULL), 0);
    assert_null(o.data);
    assert_null(o.checkpoint);
    assert_int_equal(o.hidden.count, 2);
    assert_int_equal(o.hidden.size[0], 512);
    assert_int_equal(o.hidden.size[1], 256);
    assert_true(o.epochs > 0 && o.batch_size > 0 && o.lr > 0);
    assert_int_equal(o.device, CT_CHOOSE_AUTO);
    assert_false(o.help);
}

static void test_both_spellings_and_forms(void **state)
{
    (void)state;
    struct ct_train_options a, b;
    assert_int_equal(
        parse((const char *const[]){"--batch_size", "64", "--weight_decay=0.5", NULL}, &a, NULL),
        0);
    assert_int_equal(
        parse((const char *const[]){"--batch-size=64", "--weight-decay", "0.5", NULL}, &b, NULL),
        0);
    assert_int_equal(a.batch_size, 64);
    assert_int_equal(b.batch_size, 64);
    assert_true(a.weight_decay == 0.5 && b.weight_decay == 0.5);
}

static void test_every_option_takes_its_value(void **state)
{
    (void)state;
    struct ct_train_options o;
    assert_int_equal(
        parse((const char *const[]){"--data=d", "--hidden=7", "--lr=1e-3", "--momentum=0",
                                    "--seed=9223372036854775807", "--device=cpu",
                                    "--optimizer=adamw", "--resume=r", "--schedule=constant", NULL},
              &o, NULL),
        0);
    assert_string_equal(o.data, "d");
    assert_string_equal(o.resume, "r");
    assert_int_equal(o.hidden.count, 1);
    assert_int_equal(o.hidden.size[0], 7);
    assert_true(o.lr == 1e-3 && o.momentum == 0);
    assert_true(o.seed == INT64_MAX);
    assert_int_equal(o.device, CT_CHOOSE_CPU);
    assert_int_equal(o.optimizer, CT_OPTIMIZER_ADAMW);
    assert_int_equal(o.schedule, CT_SCHEDULE_CONSTANT);
}

static void test_rate_follows_optimizer_unless_given(void **state)
{
    (void)state;
    struct ct_train_options sgd, adamw, given;
    assert_int_equal(parse((const char *const[]){"--optimizer=sgd", NULL}, &sgd, NULL), 0);
    assert_int_equal(parse((const char *const[]){"--optimizer=adamw", NULL}, &adamw, NULL), 0);
    assert_int_equal(
        parse((const char *const[]){"--lr=0.5", "--optimizer=adamw", NULL}, &given, NULL), 0);
    assert_true(adamw.lr < sgd.lr);
    assert_true(given.lr == 0.5);
}

static void test_wrong_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *args[ARGS_MAX];
        const char *why;
    } cases[] = {
        {{"--epohcs", "3"}, "unknown option --epohcs: did you mean --epochs?"},
        {{"--nope=1"}, "unknown option --nope "},
        {{"--max-restarts=3"}, "options of ctrun go before the program: ctrun --max-restarts ..."},
        {{"--batchsize=64"}, "unknown option --batchsize: did you mean --batch-size?"},
        {{"--BATCH_SIZES", "64"}, "did you mean --batch-size?"},
        {{"--=1"}, "unknown option -- "},
        {{"--check=x"}, "--check is ambiguous: --checkpoint or --checkpoint-dir?"},
        {{"--p", "x"}, "--p is ambiguous: --"},
        {{LONG_WORD}, "unknown option --" AAAA " "},
        {{LONG_ARGUMENT}, "unexpected argument '" BBBB "' "},
        {{"-x"}, "unexpected argument '-x'"},
        {{"--"}, "unexpected argument '--'"},
        {{"file"}, "unexpected argument 'file'"},
        {{"--epochs"}, "--epochs needs a value"},
        {{"--help=1"}, "--help takes no value"},
        {{"--epochs", "0"}, "--epochs: 0 is not within 1 .. "},
        {{"--epochs", "-1"}, "--epochs: -1 is not within"},
        {{"--epochs", "3x"}, "--epochs: '3x' is not a whole number"},
        {{"--epochs="}, "--epochs: '' is not a whole number"},
        {{"--epochs", " 3"}, "is not a whole number"},
        {{"--epochs", "99999999999999999999"}, "is not within"},
        {{"--batch-size", "0"}, "--batch-size: 0"},
        {{"--batch_size", "2147483648"}, "--batch-size: 2147483648 is not within"},
        {{"--lr", "nan"}, "--lr: 'nan' is not a number"},
        {{"--lr", "0x1"}, "is not a number"},
        {{"--lr", "0"}, "--lr: 0 is not within"},
        {{"--lr", "1e999"}, "is not within"},
        {{"--momentum", "1"}, "--momentum: 1 is not within"},
        {{"--weight-decay", "-1"}, "is not within"},
        {{"--seed", "-1"}, "--seed: -1"},
        {{"--seed", "9223372036854775808"}, "--seed: "},
        {{"--optimizer", "adam"}, "'adam' is not one of sgd|adamw"},
        {{"--device", "gpu"}, "'gpu' is not one of auto|cpu|cuda"},
        {{"--device", "cpu|cuda"}, "is not one of"},
        {{"--device", ""}, "is not one of"},
        {{"--schedule", "cosin"}, "'cosin' is not one of cosine|constant"},
        {{"--consistent=6"}, "--consistent: 6 is not a power of two"},
        {{"--consistent=2048"}, "--consistent: 2048 is not within 1 .. 1024"},
        {{"--consistent", "4"}, "unexpected argument '4'"},
        {{"--scale-lr", "log"}, "'log' is not one of off|linear|sqrt"},
        {{"--base-batch", "0"}, "--base-batch: 0"},
        {{"--epochs=5", "--warmup-epochs=5"}, "--warmup-epochs: 5 is not below the 5 of --epochs"},
        {{"--checkpoint", ""}, "--checkpoint: the FILE is empty"},
        {{"--hidden", "0"}, "'0' in '0' is not a layer size"},
        {{"--hidden", "512,0"}, "'0' in '512,0'"},
        {{"--hidden", ""}, "'' in ''"},
        {{"--hidden", "512,"}, "'' in '512,'"},
        {{"--hidden", ",512"}, "is not a layer size"},
        {{"--hidden", "512 256"}, "is not a layer size"},
        {{"--hidden", "1048577"}, "is not a layer size"},
        {{"--hidden", "99999999999999999999999999"}, "is not a layer size"},
        {{"--augment", "flip,crop"}, "--augment: 'crop' is not one of flip, shift"},
        {{"--augment="}, "'' is not one of flip, shift"},
        {{"--augment=flip,"}, "'' is not one of flip, shift"},
        {{"--checkpoint-every", "3m"}, "--checkpoint-every: '3m' is not a number of steps (100)"},
        {{"--checkpoint-every", "s"}, "--checkpoint-every: '' is not a whole number"},
        {{"--checkpoint-every", "0s"}, "--checkpoint-every: 0 is not within 1 .. "},
        {{"--checkpoint-every", "111111111111111111111111"}, "is not a number of steps"},
        {{"-hx"}, "unexpected argument '-hx'"},
        {{"--hidden", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
         "more than 32 layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ct_train_options o = {.epochs = 77};
        struct ct_err err = {0};
        if (parse(cases[i].args, &o, &err) != CT_EINVAL || strstr(err.text, cases[i].why) == NULL) {
            fail_msg("%s: got '%s', expected '%s'", cases[i].args[0], err.text, cases[i].why);
        }
        assert_int_equal(o.epochs, 77); /* untouched */
    }
}

static void test_words_and_units_are_read(void **state)
{
    (void)state;
    struct ct_train_options o;
    assert_int_equal(parse((const char *const[]){"--augment=shift", NULL}, &o, NULL), 0);
    assert_true(o.augment.shift && !o.augment.flip);
    assert_int_equal(parse((const char *const[]){"--augment=flip,shift", NULL}, &o, NULL), 0);
    assert_true(o.augment.shift && o.augment.flip);
    static const struct {
        const char *text;
        struct ct_interval expected;
    } intervals[] = {
        {"100", {.steps = 100}},
        {"1step", {.steps = 1}},
        {"20steps", {.steps = 20}},
        {"30s", {.seconds = 30}},
    };
    for (size_t i = 0; i < sizeof intervals / sizeof intervals[0]; i++) {
        assert_int_equal(parse((const char *const[]){"--checkpoint=c", "--checkpoint-every",
                                                     intervals[i].text, NULL},
                               &o, NULL),
                         0);
        assert_int_equal(o.checkpoint_every.steps, intervals[i].expected.steps);
        assert_int_equal(o.checkpoint_every.seconds, intervals[i].expected.seconds);
    }
}

/* Options that need or exclude each other. */
static void test_options_need_or_exclude_others(void **state)
{
    (void)state;
    static const struct {
        const char *args[ARGS_MAX];
        const char *why; /* NULL: allowed */
    } cases[] = {
        {{"--checkpoint-every=5"}, "needs --checkpoint or --checkpoint-dir"},
        {{"--checkpoint-every=5s"}, "needs --checkpoint or --checkpoint-dir"},
        {{"--checkpoint-every=5", "--checkpoint-dir=d"}, NULL},
        {{"--resume=auto", "--checkpoint=c"}, "--resume auto needs --checkpoint-dir"},
        {{"--resume=auto", "--checkpoint-dir=d"}, NULL},
        {{"--metrics-every=5"}, "--metrics-every needs --metrics or --tensorboard"},
        {{"--metrics-every=5", "--tensorboard=d"}, NULL},
        {{"--plot=m"}, "--plot and --output need each other"},
        {{"-o", "svg"}, "--plot and --output need each other"},
        {{"--plot=m", "-o", "svg"}, NULL},
        {{"--eval-only"}, "--eval-only needs --resume"},
        {{"--eval-only", "--resume=c"}, NULL},
        {{"--predict=p", "--pipeline-stages=2"}, "--predict and --pipeline-stages exclude"},
        {{"--predict=p"}, NULL},
        {{"--consistent", "--pipeline-stages=2"}, "--consistent and --pipeline-stages exclude"},
        {{"--consistent", "--precision=fp8"}, "--consistent and --precision fp8 exclude"},
        {{"--consistent", "--precision=bf16"}, NULL},
        {{"--gpus=2", "--device=cpu"}, "--gpus and --device cpu exclude each other"},
        {{"--gpus=2", "--pipeline-stages=2"}, "--gpus and --pipeline-stages exclude each other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ct_train_options o;
        struct ct_err err = {0};
        int rc = parse(cases[i].args, &o, &err);
        if (cases[i].why == NULL ? rc != 0
                                 : rc != CT_EINVAL || strstr(err.text, cases[i].why) == NULL) {
            fail_msg("%s: %d '%s'", cases[i].args[0], rc, err.text);
        }
    }
}

static void test_gpus_choose_cuda(void **state)
{
    (void)state;
    struct ct_train_options o;
    assert_int_equal(parse((const char *const[]){"--gpus=2", NULL}, &o, NULL), 0);
    assert_int_equal(o.gpus, 2);
    assert_int_equal(o.device, CT_CHOOSE_CUDA);
}

static void test_help_wins_over_what_follows(void **state)
{
    (void)state;
    struct ct_train_options o;
    assert_int_equal(parse((const char *const[]){"--help", "--nope", NULL}, &o, NULL), 0);
    assert_true(o.help);
    assert_int_equal(parse((const char *const[]){"-h", NULL}, &o, NULL), 0);
    assert_true(o.help);
    assert_int_equal(parse((const char *const[]){"--version", NULL}, &o, NULL), 0);
    assert_true(o.version);
}

static void test_names_may_be_shortened(void **state)
{
    (void)state;
    struct ct_train_options o;
    assert_int_equal(parse((const char *const[]){"--batch=64", "--hid", "7", "--weight_d=0.5",
                                                 "--resu", "r", "--checkpoint", "c", NULL},
                           &o, NULL),
                     0);
    assert_int_equal(o.batch_size, 64);
    assert_int_equal(o.hidden.size[0], 7);
    assert_true(o.weight_decay == 0.5);
    assert_string_equal(o.resume, "r");
    /* A whole name is not the beginning of a longer one. */
    assert_string_equal(o.checkpoint, "c");
    assert_null(o.checkpoint_dir);
    assert_int_equal(parse((const char *const[]){"-V", NULL}, &o, NULL), 0);
    assert_true(o.version);
}

static int help_body(void *data)
{
    (void)data;
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_train_options_help(&text);
    if (rc == 0) {
        const char *s = ct_buf_cstr(&text);
        rc = s != NULL ? 0 : CT_ENOMEM;
        if (rc == 0 && (strstr(s, "--batch-size N ") == NULL || strstr(s, "-h, --help") == NULL ||
                        strstr(s, "--consistent[=SHARDS]") == NULL)) {
            rc = CT_EFORMAT;
        }
    }
    ct_buf_fini(&text);
    return rc;
}

static void test_help_survives_faults(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(help_body, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_hold_without_options),
        cmocka_unit_test(test_both_spellings_and_forms),
        cmocka_unit_test(test_every_option_takes_its_value),
        cmocka_unit_test(test_rate_follows_optimizer_unless_given),
        cmocka_unit_test(test_wrong_values_are_refused),
        cmocka_unit_test(test_words_and_units_are_read),
        cmocka_unit_test(test_options_need_or_exclude_others),
        cmocka_unit_test(test_gpus_choose_cuda),
        cmocka_unit_test(test_help_wins_over_what_follows),
        cmocka_unit_test(test_names_may_be_shortened),
        cmocka_unit_test(test_help_survives_faults),
    };
    return cmocka_run_group_tests_name("train_options", tests, NULL, NULL);
}
