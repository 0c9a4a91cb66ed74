/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of train. A row of the table is an option: its name, its field in struct
 * ct_train_options, and the function that reads the value. Conditions on several options are
 * checked after all are read. Texts are borrowed from argv; nothing is allocated.
 */
#include "trainer/session/train_options.h"

#include "common/num.h"
#include "common/option_parser.h"
#include "trainer/model/shards.h"
#include "worker/ctworker.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Two adjacent layers wider than this need more memory than any machine has. */
#define HIDDEN_SIZE_MAX 1048576

struct spec;
typedef int (*set_fn)(const struct spec *spec, const char *text, struct ct_train_options *out,
                      struct ct_err *err);

struct spec {
    const char *name;    /* without "--", with dashes */
    const char *metavar; /* NULL: the option takes no value */
    const char *
        initial; /* read as if it were given, when the option is not; NULL = the field stays zero */
    set_fn set;
    size_t offset; /* of the field in the options */
    double min, max;
    const char *help;   /* one line */
    const char *letter; /* short form, for example "-h" for "--help"; NULL = none */
    const char *bare; /* the value if the option is given without "="; NULL = a value is required */
};

static void *field(const struct spec *spec, struct ct_train_options *out)
{
    return (char *)out + spec->offset;
}

static int set_flag(const struct spec *spec, const char *text, struct ct_train_options *out,
                    struct ct_err *err)
{
    (void)text;
    (void)err;
    *(bool *)field(spec, out) = true;
    return 0;
}

static int set_text(const struct spec *spec, const char *text, struct ct_train_options *out,
                    struct ct_err *err)
{
    if (text[0] == '\0') {
        return ct_err_set(err, CT_EINVAL, "--%s: the %s is empty", spec->name, spec->metavar);
    }
    *(const char **)field(spec, out) = text;
    return 0;
}

static int read_integer(const struct spec *spec, const char *text, int64_t *out, struct ct_err *err)
{
    /* The largest limit, INT64_MAX, is no double, so the cast back must not overflow. */
    int64_t max = spec->max >= 0x1p63 ? INT64_MAX : (int64_t)spec->max;
    int rc = ct_parse_i64(text, (int64_t)spec->min, max, out);
    if (rc == CT_ELIMIT) {
        return ct_err_set(err, CT_EINVAL, "--%s: %s is not within %lld .. %lld", spec->name, text,
                          (long long)spec->min, (long long)max);
    }
    if (rc != 0) {
        return ct_err_set(err, CT_EINVAL, "--%s: '%s' is not a whole number", spec->name, text);
    }
    return 0;
}

static int set_int(const struct spec *spec, const char *text, struct ct_train_options *out,
                   struct ct_err *err)
{
    int64_t value;
    int rc = read_integer(spec, text, &value, err);
    if (rc == 0) {
        *(int *)field(spec, out) = (int)value;
    }
    return rc;
}

static int set_size(const struct spec *spec, const char *text, struct ct_train_options *out,
                    struct ct_err *err)
{
    int64_t value;
    int rc = read_integer(spec, text, &value, err);
    if (rc == 0) {
        *(size_t *)field(spec, out) = (size_t)value;
    }
    return rc;
}

static int set_seed(const struct spec *spec, const char *text, struct ct_train_options *out,
                    struct ct_err *err)
{
    int64_t value;
    int rc = read_integer(spec, text, &value, err);
    if (rc == 0) {
        *(uint64_t *)field(spec, out) = (uint64_t)value;
    }
    return rc;
}

static int set_double(const struct spec *spec, const char *text, struct ct_train_options *out,
                      struct ct_err *err)
{
    double value;
    int rc = ct_parse_double(text, spec->min, spec->max, &value);
    if (rc == CT_ELIMIT) {
        return ct_err_set(err, CT_EINVAL, "--%s: %s is not within %g .. %g", spec->name, text,
                          spec->min, spec->max);
    }
    if (rc != 0) {
        return ct_err_set(err, CT_EINVAL, "--%s: '%s' is not a number", spec->name, text);
    }
    *(double *)field(spec, out) = value;
    return 0;
}

static int set_hidden(const struct spec *spec, const char *text, struct ct_train_options *out,
                      struct ct_err *err)
{
    struct ct_hidden hidden = {0};
    const char *p = text;
    for (;;) {
        char item[16]; /* longer than any valid number */
        size_t len = strcspn(p, ",");
        int64_t size = 0;
        int rc = CT_EFORMAT;
        if (len < sizeof item) {
            memcpy(item, p, len);
            item[len] = '\0';
            rc = ct_parse_i64(item, 1, HIDDEN_SIZE_MAX, &size);
        }
        if (rc != 0) {
            return ct_err_set(err, CT_EINVAL,
                              "--%s: '%.*s' in '%s' is not a layer size within 1 .. %d", spec->name,
                              (int)(len < 64 ? len : 64), p, text, HIDDEN_SIZE_MAX);
        }
        if (hidden.count == CT_HIDDEN_MAX) {
            return ct_err_set(err, CT_EINVAL, "--%s: more than %d layers", spec->name,
                              CT_HIDDEN_MAX);
        }
        hidden.size[hidden.count++] = (size_t)size;
        if (p[len] == '\0') {
            break;
        }
        p += len + 1;
    }
    out->hidden = hidden;
    return 0;
}

/* Reads "100", "100steps" or "30s". */
static int set_interval(const struct spec *spec, const char *text, struct ct_train_options *out,
                        struct ct_err *err)
{
    char digits[24];
    size_t len = strspn(text, "0123456789");
    const char *unit = text + len;
    bool seconds = strcmp(unit, "s") == 0;
    int64_t value;
    if (len >= sizeof digits ||
        (!seconds && *unit != '\0' && strcmp(unit, "step") != 0 && strcmp(unit, "steps") != 0)) {
        return ct_err_set(err, CT_EINVAL,
                          "--%s: '%s' is not a number of steps (100) or seconds (30s)", spec->name,
                          text);
    }
    memcpy(digits, text, len);
    digits[len] = '\0';
    int rc = read_integer(spec, digits, &value, err);
    if (rc == 0) {
        *(struct ct_interval *)field(spec, out) =
            seconds ? (struct ct_interval){.seconds = value} : (struct ct_interval){.steps = value};
    }
    return rc;
}

/* Reads words separated by commas. */
static int set_augment(const struct spec *spec, const char *text, struct ct_train_options *out,
                       struct ct_err *err)
{
    struct ct_augment_choice *choice = field(spec, out);
    for (const char *word = text;; word++) {
        size_t len = strcspn(word, ",");
        if (len == strlen("flip") && memcmp(word, "flip", len) == 0) {
            choice->flip = true;
        } else if (len == strlen("shift") && memcmp(word, "shift", len) == 0) {
            choice->shift = true;
        } else {
            return ct_err_set(err, CT_EINVAL, "--%s: '%.*s' is not one of flip, shift", spec->name,
                              (int)(len < 64 ? len : 64), word);
        }
        word += len;
        if (*word == '\0') {
            return 0;
        }
    }
}

/* Reads one of the words that the metavar lists. The field is an enum in the same order. */
static int set_choice(const struct spec *spec, const char *text, struct ct_train_options *out,
                      struct ct_err *err)
{
    size_t len = strlen(text);
    unsigned place = 0;
    for (const char *word = spec->metavar;; place++) {
        size_t word_len = strcspn(word, "|");
        if (word_len == len && memcmp(word, text, len) == 0) {
            *(unsigned *)field(spec, out) = place;
            return 0;
        }
        if (word[word_len] == '\0') {
            return ct_err_set(err, CT_EINVAL, "--%s: '%s' is not one of %s", spec->name, text,
                              spec->metavar);
        }
        word += word_len + 1;
    }
}

static int set_shards(const struct spec *spec, const char *text, struct ct_train_options *out,
                      struct ct_err *err)
{
    int64_t value;
    int rc = read_integer(spec, text, &value, err);
    if (rc == 0 && (value & (value - 1)) != 0) {
        return ct_err_set(err, CT_EINVAL, "--%s: %s is not a power of two", spec->name, text);
    }
    if (rc == 0) {
        out->shards = (size_t)value;
    }
    return rc;
}

#define FIELD(name) offsetof(struct ct_train_options, name)

static const struct spec specs[] = {
    {"data", "DIR|synthetic", NULL, set_text, FIELD(data), 0, 0,
     "folder of IDX, CIFAR-10 or .npy files (Debian's Fashion-MNIST)"},
    {"augment", "flip,shift", NULL, set_augment, FIELD(augment), 0, 0,
     "mirror and move training images at random"},
    {"hidden", "N,N,...", "512,256", set_hidden, FIELD(hidden), 0, 0, "sizes of the hidden layers"},
    {"epochs", "N", "15", set_int, FIELD(epochs), 1, 1000000, "passes over the training set"},
    {"batch-size", "N", "256", set_size, FIELD(batch_size), 1, INT_MAX,
     "samples per step, of all workers together"},
    {"lr", "X", NULL, set_double, FIELD(lr), 1e-12, 1e6, "learning rate (sgd 0.02, adamw 0.001)"},
    {"momentum", "X", "0.9", set_double, FIELD(momentum), 0, 0.999999, "momentum of sgd"},
    {"weight-decay", "X", "0.0001", set_double, FIELD(weight_decay), 0, 1000,
     "weight decay of either optimizer"},
    {"optimizer", "sgd|adamw", "sgd", set_choice, FIELD(optimizer), 0, 0, "update rule"},
    {"schedule", "cosine|constant", "cosine", set_choice, FIELD(schedule), 0, 0,
     "the learning rate over all epochs"},
    {"scale-lr", "off|linear|sqrt", "off", set_choice, FIELD(scale_lr), 0, 0,
     "scale --lr by batch size / base batch, or its square root"},
    {"base-batch", "N", "256", set_size, FIELD(base_batch), 1, INT_MAX,
     "batch size that --lr is for, with --scale-lr"},
    {"warmup-epochs", "X", "0", set_double, FIELD(warmup_epochs), 0, 1000000,
     "epochs in which the rate rises from zero to --lr"},
    {"consistent", "SHARDS", NULL, set_shards, FIELD(shards), 1, CT_SHARDS_MAX,
     "same result, bit by bit, for any N workers that divide this", NULL, "8"},
    {"seed", "N", "1", set_seed, FIELD(seed), 0, 0x1p63,
     "seed of the initial weights and the shuffling"},
    {"device", "auto|cpu|cuda", "auto", set_choice, FIELD(device), 0, 0, "where to compute"},
    {"gpus", "N", NULL, set_int, FIELD(gpus), 1, CTW_CREW_MAX,
     "drive N GPUs from this one process, as N workers would"},
    {"precision", "auto|f32|tf32|bf16|fp8", "auto", set_choice, FIELD(precision), 0, 0,
     "number format of matrix products; parameters stay f32"},
    {"cuda-graph", "auto|off", "auto", set_choice, FIELD(cuda_graph), 0, 0,
     "record a step on the GPU once and replay it"},
    {"bucket-mb", "N", "25", set_size, FIELD(bucket_mb), 1, 1 << 20,
     "MiB of gradients that GPUs sum at a time"},
    {"pipeline-stages", "P", "1", set_size, FIELD(pipeline_stages), 1, CT_HIDDEN_MAX + 1,
     "spread the layers over P workers; divides the world size"},
    {"micro-batches", "M", NULL, set_size, FIELD(micro_batches), 1, INT_MAX,
     "parts into which each pipeline cuts a batch (4 x P)"},
    {"snapshot", "off|step", "step", set_choice, FIELD(snapshot), 0, 0,
     "keep the state of each step in memory for a restart"},
    {"in-process-restart", "auto|on|off", "auto", set_choice, FIELD(in_process), 0, 0,
     "stay in this process when a peer dies (auto: on GPUs)"},
    {"checkpoint", "FILE", NULL, set_text, FIELD(checkpoint), 0, 0,
     "write the state there after each epoch (safetensors)"},
    {"checkpoint-dir", "DIR", NULL, set_text, FIELD(checkpoint_dir), 0, 0,
     "write checkpoints named by their step into that folder"},
    {"checkpoint-every", "N[s|steps]", NULL, set_interval, FIELD(checkpoint_every), 1, INT_MAX,
     "how often, in steps or seconds (after each epoch)"},
    {"keep-checkpoints", "N", "3", set_int, FIELD(keep_checkpoints), 1, INT_MAX,
     "newest checkpoints that stay in the folder"},
    {"resume", "FILE|auto", NULL, set_text, FIELD(resume), 0, 0,
     "go on from a checkpoint; auto: the newest whole one, if any"},
    {"eval-only", NULL, NULL, set_flag, FIELD(eval_only), 0, 0,
     "only test the model that --resume names"},
    {"predict", "FILE", NULL, set_text, FIELD(predict), 0, 0,
     "write class and probability of each test image (CSV)"},
    {"metrics", "FILE", NULL, set_text, FIELD(metrics), 0, 0, "append one JSON line per epoch"},
    {"metrics-every", "N", NULL, set_int, FIELD(metrics_every), 1, INT_MAX,
     "also one line every N steps"},
    {"tensorboard", "DIR", NULL, set_text, FIELD(tensorboard), 0, 0,
     "write an event file for TensorBoard there"},
    {"plot", "FILE", NULL, set_text, FIELD(plot), 0, 0,
     "draw the metrics in FILE, or in several FILE,FILE, as SVG; see --output"},
    {"output", "FILE", NULL, set_text, FIELD(output), 0, 0, "where --plot draws", "-o"},
    {"version", NULL, NULL, set_flag, FIELD(version), 0, 0, "print the version and exit", "-V"},
    {"help", NULL, NULL, set_flag, FIELD(help), 0, 0, "print this text and exit", "-h"},
};

/* set_choice() writes enums as unsigned, their type in gcc and clang if no value is negative. */
_Static_assert(sizeof(enum ct_optimizer_kind) == sizeof(unsigned) &&
                   sizeof(enum ct_schedule) == sizeof(unsigned) &&
                   sizeof(enum ct_rate_scale) == sizeof(unsigned) &&
                   sizeof(enum ct_device_choice) == sizeof(unsigned) &&
                   sizeof(enum ct_snapshot_choice) == sizeof(unsigned) &&
                   sizeof(enum ct_in_process) == sizeof(unsigned) &&
                   sizeof(enum ct_precision_choice) == sizeof(unsigned),
               "enums are unsigned");

#define SPEC_COUNT (sizeof specs / sizeof specs[0])

#define SEE_HELP "(see train --help)"
/* The most of a user's word that a message quotes. */
#define SHOWN_MAX 64

static struct ct_option option_at(size_t index)
{
    if (index == SPEC_COUNT) {
        return (struct ct_option){0};
    }
    const struct spec *spec = &specs[index];
    return (struct ct_option){
        .name = spec->name,
        .letter = spec->letter != NULL ? spec->letter[1] : '\0',
        .value = spec->bare != NULL      ? CT_VALUE_AFTER_EQUALS
                 : spec->metavar != NULL ? CT_VALUE_NEEDED
                                         : CT_VALUE_NONE,
    };
}

static int unexpected(const char *word, struct ct_err *err)
{
    return ct_err_set(err, CT_EINVAL, "unexpected argument '%.*s%s' " SEE_HELP, SHOWN_MAX, word,
                      strlen(word) > SHOWN_MAX ? "..." : "");
}

/* Is it an option of ctrun or torchrun, which must stand before the program? */
static bool is_of_ctrun(const char *name, size_t len)
{
    static const char *const names[] = {
        "nproc-per-node", "nnodes",       "node-rank",    "master-addr",  "master-port",
        "standalone",     "max-restarts", "log-dir",      "tee",          "redirects",
        "report",         "hosts",        "rdzv-backend", "rdzv-id",      "rdzv-conf",
        "rdzv-endpoint",  "bind",         "spares",       "hang-timeout", "hostfile",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}

static int refuse(const struct ct_option_parser *at, enum ct_option_result result,
                  struct ct_err *err)
{
    if (result == CT_OPTION_UNKNOWN && at->word[1] != '-') {
        return unexpected(at->word, err);
    }
    const char *name = at->word + 2;
    int len = (int)strcspn(name, "=");
    int shown = len < SHOWN_MAX ? len : SHOWN_MAX;
    switch (result) {
    case CT_OPTION_AMBIGUOUS:
        return ct_err_set(err, CT_EINVAL, "--%.*s is ambiguous: --%s or --%s? " SEE_HELP, len, name,
                          at->fits[0], at->fits[1]);
    case CT_OPTION_TAKES_NONE:
        return ct_err_set(err, CT_EINVAL, "--%s takes no value", specs[at->index].name);
    case CT_OPTION_NEEDS_VALUE:
        return ct_err_set(err, CT_EINVAL, "--%s needs a value: %s", specs[at->index].name,
                          specs[at->index].metavar);
    case CT_OPTION_UNKNOWN:
        if (is_of_ctrun(name, (size_t)len)) {
            return ct_err_set(err, CT_EINVAL,
                              "unknown option --%.*s; options of ctrun go before the program: "
                              "ctrun --%.*s ... train",
                              len, name, len, name);
        }
        break;
    case CT_OPTION_FOUND:
    case CT_OPTION_END:
        break;
    }
    return at->nearest != NULL
               ? ct_err_set(err, CT_EINVAL, "unknown option --%.*s: did you mean --%s? " SEE_HELP,
                            shown, name, at->nearest)
               : ct_err_set(err, CT_EINVAL, "unknown option --%.*s%s " SEE_HELP, shown, name,
                            len > SHOWN_MAX ? "..." : "");
}

static int take_option(const struct ct_option_parser *at, struct ct_train_options *out,
                       struct ct_err *err)
{
    const struct spec *spec = &specs[at->index];
    if (at->word[1] != '-' && at->word[2] != '\0') {
        return unexpected(at->word, err); /* short options cannot be combined */
    }
    return spec->set(spec, at->value != NULL ? at->value : spec->bare, out, err);
}

static void set_initial(struct ct_train_options *out)
{
    *out = (struct ct_train_options){.lr = NAN};
    for (size_t i = 0; i < SPEC_COUNT; i++) {
        if (specs[i].initial != NULL) {
            CT_ASSERT(specs[i].set(&specs[i], specs[i].initial, out, NULL) == 0);
        }
    }
}

/* --gpus needs GPUs, and excludes what they cannot do. */
static int check_gpus(struct ct_train_options *o, struct ct_err *err)
{
    if (o->gpus == 0) {
        return 0;
    }
    const char *other = o->device == CT_CHOOSE_CPU ? "--device cpu"
                        : o->pipeline_stages > 1   ? "--pipeline-stages"
                                                   : NULL;
    if (other != NULL) {
        return ct_err_set(err, CT_EINVAL, "--gpus and %s exclude each other", other);
    }
    o->device = CT_CHOOSE_CUDA;
    return 0;
}

/* Checks for options that need another one, or exclude it. */
static int check_company(const struct ct_train_options *o, struct ct_err *err)
{
    bool every = o->checkpoint_every.steps > 0 || o->checkpoint_every.seconds > 0;
    if (every && o->checkpoint == NULL && o->checkpoint_dir == NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "--checkpoint-every needs --checkpoint or --checkpoint-dir");
    }
    if (o->resume != NULL && strcmp(o->resume, CT_RESUME_AUTO) == 0 && o->checkpoint_dir == NULL) {
        return ct_err_set(err, CT_EINVAL, "--resume auto needs --checkpoint-dir");
    }
    if (o->metrics_every > 0 && o->metrics == NULL && o->tensorboard == NULL) {
        return ct_err_set(err, CT_EINVAL, "--metrics-every needs --metrics or --tensorboard");
    }
    if ((o->plot != NULL) != (o->output != NULL)) {
        return ct_err_set(err, CT_EINVAL, "--plot and --output need each other");
    }
    if (o->eval_only && o->resume == NULL) {
        return ct_err_set(err, CT_EINVAL, "--eval-only needs --resume");
    }
    if (o->predict != NULL && o->pipeline_stages > 1) {
        return ct_err_set(err, CT_EINVAL, "--predict and --pipeline-stages exclude each other");
    }
    return 0;
}

static int check_together(struct ct_train_options *o, struct ct_err *err)
{
    if (o->shards > 0 && o->pipeline_stages > 1) {
        return ct_err_set(err, CT_EINVAL, "--consistent and --pipeline-stages exclude each other");
    }
    if (o->shards > 0 && o->precision == CT_PRECISION_CHOOSE_FP8) {
        return ct_err_set(
            err, CT_EINVAL,
            "--consistent and --precision fp8 exclude each other: its scale is of all "
            "that a GPU has of a batch");
    }
    if (o->warmup_epochs >= o->epochs) {
        return ct_err_set(err, CT_EINVAL, "--warmup-epochs: %g is not below the %d of --epochs",
                          o->warmup_epochs, o->epochs);
    }
    int rc = check_company(o, err);
    return rc != 0 ? rc : check_gpus(o, err);
}

int ct_train_options_parse(int argc, char *const argv[], struct ct_train_options *out,
                           struct ct_err *err)
{
    struct ct_option_parser at = {.option_at = option_at, .argv = argv, .next = 1};
    struct ct_train_options options;
    enum ct_option_result result;
    (void)argc;
    set_initial(&options);
    while ((result = ct_option_next(&at)) != CT_OPTION_END) {
        int rc =
            result == CT_OPTION_FOUND ? take_option(&at, &options, err) : refuse(&at, result, err);
        if (rc != 0) {
            return rc;
        }
        if (options.help || options.version) {
            *out = options;
            return 0;
        }
    }
    if (at.word != NULL) {
        return unexpected(at.word, err);
    }
    if (isnan(options.lr)) {
        options.lr = options.optimizer == CT_OPTIMIZER_SGD ? 0.02 : 0.001;
    }
    int rc = check_together(&options, err);
    if (rc != 0) {
        return rc;
    }
    *out = options;
    return 0;
}

static const char *between(const struct spec *spec)
{
    return spec->bare != NULL ? "[=" : spec->metavar != NULL ? " " : "";
}

int ct_train_options_help(struct ct_buf *out)
{
    int rc = ct_buf_printf(
        out, "usage: train [options]\n"
             "       ctrun --nproc-per-node N train [options]\n\n"
             "Trains a multi-layer perceptron on images, alone or as one of N workers.\n\n");
    for (size_t i = 0; rc == 0 && i < SPEC_COUNT; i++) {
        const struct spec *s = &specs[i];
        char head[64];
        (void)snprintf(head, sizeof head, "%s%s--%s%s%s%s", s->letter != NULL ? s->letter : "",
                       s->letter != NULL ? ", " : "", s->name, between(s),
                       s->metavar != NULL ? s->metavar : "", s->bare != NULL ? "]" : "");
        rc = ct_buf_printf(out, "  %-26s  %s", head, s->help);
        const char *value = s->bare != NULL ? s->bare : s->initial;
        if (rc == 0 && value != NULL) {
            rc = ct_buf_printf(out, " (%s)", value);
        }
        if (rc == 0) {
            rc = ct_buf_append(out, "\n", 1);
        }
    }
    return rc;
}

const char *ct_train_version(void)
{
    return CT_VERSION;
}
