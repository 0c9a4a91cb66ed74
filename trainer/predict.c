/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/predict.h"

#include "common/alloc.h"
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* The largest logit's place (the first one on a tie, as in the accuracy) and its softmax. */
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

static int write_part(int fd, const float *logits, size_t classes, size_t first, size_t rows,
                      struct ct_buf *text, struct ct_err *err)
{
    ct_buf_reset(text);
    int rc = first == 0 ? ct_buf_printf(text, "index,class,probability\n") : 0;
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        double probability;
        size_t class = pick(logits + i * classes, classes, &probability);
        rc = ct_buf_printf(text, "%zu,%zu,%.6f\n", first + i, class, probability);
    }
    if (rc != 0) {
        return ct_err_set(err, rc, "out of memory");
    }
    rc = ct_fd_write_all(fd, ct_buf_bytes(text), text->len);
    if (rc != 0) {
        int saved = errno;
        return ct_err_sys(err, rc, saved, "cannot write");
    }
    return 0;
}

static int write_all(struct ct_trainer *t, int fd, float *logits, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    size_t count = t->dataset.test.count, classes = t->dataset.classes;
    const struct ct_layout *layout = &t->layout;
    int rc = 0;
    for (size_t first = 0, rows; rc == 0 && first < count; first += rows) {
        rows = count - first < t->model.max_rows ? count - first : t->model.max_rows;
        const struct ct_resident part = {
            .images = t->test.images + first * t->dataset.features,
            .labels = t->test.labels + first,
            .mean = t->test.mean,
            .stddev = t->test.stddev,
        };
        rc = ct_model_load(&t->model, &part, t->sequence, rows, err);
        if (rc == 0) {
            rc = ct_model_forward(&t->model, t->params, rows, err);
        }
        if (rc == 0) {
            rc = t->dev->ops->download(t->dev, logits, t->model.act[layout->layer_count],
                                       rows * classes * sizeof *logits, err);
        }
        if (rc == 0) {
            rc = write_part(fd, logits, classes, first, rows, &text, err);
        }
    }
    ct_buf_fini(&text);
    return rc;
}

static int write_file(struct ct_trainer *t, const char *path, const char *temporary, float *logits,
                      struct ct_err *err)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot write");
    }
    int rc = write_all(t, fd, logits, err);
    if (close(fd) != 0 && rc == 0) {
        int saved = errno;
        rc = ct_err_sys(err, CT_EIO, saved, "cannot close");
    }
    if (rc == 0 && rename(temporary, path) != 0) {
        int saved = errno;
        rc = ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot rename");
    }
    if (rc != 0) {
        (void)unlink(temporary);
    }
    return rc;
}

int ct_predict(struct ct_trainer *t, const char *path, struct ct_err *err)
{
    char *temporary = ct_asprintf("%s.tmp", path);
    float *logits = ct_calloc(t->model.max_rows * t->dataset.classes, sizeof *logits);
    int rc = temporary != NULL && logits != NULL ? write_file(t, path, temporary, logits, err)
                                                 : ct_err_set(err, CT_ENOMEM, "out of memory");
    if (rc != 0) {
        (void)ct_err_wrap(err, "predictions %s", path);
    }
    ct_free(logits);
    ct_free(temporary);
    return rc;
}
