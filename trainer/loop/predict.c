/* SPDX-License-Identifier: Apache-2.0
 *
 * --predict. Rank 0 alone computes all rows, collects the text in memory and replaces the file at
 * the end, so the file is complete or does not exist. All memory is freed here.
 */
#include "trainer/loop/predict.h"

#include "common/alloc.h"
#include "common/file.h"

#include <math.h>

/* Returns the index of the largest logit (on a tie the first, as for accuracy) and its softmax. */
static size_t pick(const float *logits, size_t classes, double *probability)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    double sum = 0;
    for (size_t c = 0; c < classes; c++) {
        sum += exp((double)logits[c] - (double)logits[best]);
    }
    *probability = 1 / sum;
    return best;
}

static int add_rows(const float *logits, size_t classes, size_t first, size_t rows,
                    struct ct_buf *text, struct ct_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        double probability;
        size_t class = pick(logits + i * classes, classes, &probability);
        rc = ct_buf_printf(text, "%zu,%zu,%.6f\n", first + i, class, probability);
    }
    return rc == 0 ? 0 : ct_err_set(err, rc, "out of memory");
}

static int add_all(struct ct_trainer *t, float *logits, struct ct_buf *text, struct ct_err *err)
{
    size_t count = t->data.set.test.count, classes = t->data.set.classes;
    const struct ct_layout *layout = &t->layout;
    int rc = ct_buf_printf(text, "index,class,probability\n");
    if (rc != 0) {
        return ct_err_set(err, rc, "out of memory");
    }
    for (size_t first = 0, rows; rc == 0 && first < count; first += rows) {
        rows = count - first < t->model.max_rows ? count - first : t->model.max_rows;
        const struct ct_device_dataset part = {
            .images = t->data.test.images + first * t->data.set.features,
            .labels = t->data.test.labels + first,
            .mean = t->data.test.mean,
            .stddev = t->data.test.stddev,
        };
        rc = ct_model_load(&t->model, &part, t->memory.sequence, rows, err);
        if (rc == 0) {
            rc = ct_model_forward(&t->model, t->memory.params, rows, err);
        }
        if (rc == 0) {
            rc = t->dev->ops->download(t->dev, logits, t->model.act[layout->layer_count],
                                       rows * classes * sizeof *logits, err);
        }
        if (rc == 0) {
            rc = add_rows(logits, classes, first, rows, text, err);
        }
    }
    return rc;
}

int ct_predict(struct ct_trainer *t, const char *path, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    float *logits = ct_calloc(t->model.max_rows * t->data.set.classes, sizeof *logits);
    int rc = logits != NULL ? add_all(t, logits, &text, err)
                            : ct_err_set(err, CT_ENOMEM, "out of memory");
    if (rc == 0) {
        rc = ct_file_replace(path, ct_buf_bytes(&text), text.len, err);
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "--predict");
    }
    ct_free(logits);
    ct_buf_fini(&text);
    return rc;
}
