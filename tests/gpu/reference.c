/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes each operation in the plainest way, in float64 and without a thought of speed, so that a
 * reader can see that it is right.
 */
#include "tests/gpu/reference.h"

#include <math.h>

void ct_ref_linear(const struct ct_linear *op, double *y)
{
    const float *x = op->x, *w = op->w;
    for (size_t b = 0; b < op->batch; b++) {
        for (size_t o = 0; o < op->out; o++) {
            double sum = (double)op->b[o];
            for (size_t i = 0; i < op->in; i++) {
                sum += (double)x[b * op->in + i] * (double)w[o * op->in + i];
            }
            y[b * op->out + o] = op->relu && sum < 0.0 ? 0.0 : sum;
        }
    }
}

void ct_ref_linear_grad(const struct ct_linear_grad *op, double *dw, double *db, double *dx)
{
    const float *x = op->x, *w = op->w, *dy = op->dy, *mask = op->mask;
    for (size_t o = 0; o < op->out; o++) {
        db[o] = 0.0;
        for (size_t i = 0; i < op->in; i++) {
            dw[o * op->in + i] = 0.0;
        }
        for (size_t b = 0; b < op->batch; b++) {
            double d = (double)dy[b * op->out + o];
            db[o] += d;
            for (size_t i = 0; i < op->in; i++) {
                dw[o * op->in + i] += d * (double)x[b * op->in + i];
            }
        }
    }
    for (size_t b = 0; b < op->batch; b++) {
        for (size_t i = 0; i < op->in; i++) {
            double sum = 0.0;
            for (size_t o = 0; o < op->out; o++) {
                sum += (double)dy[b * op->out + o] * (double)w[o * op->in + i];
            }
            bool off = mask != NULL && mask[b * op->in + i] <= 0.0f;
            dx[b * op->in + i] = off ? 0.0 : sum;
        }
    }
}

void ct_ref_loss(const struct ct_loss *op, double *dlogits, double totals[2])
{
    for (size_t b = 0; b < op->batch; b++) {
        const float *row = op->logits + b * op->classes;
        size_t label = op->labels[b], best = 0;
        for (size_t c = 1; c < op->classes; c++) {
            best = row[c] > row[best] ? c : best;
        }
        double sum = 0.0, max = (double)row[best];
        for (size_t c = 0; c < op->classes; c++) {
            sum += exp((double)row[c] - max);
        }
        totals[0] += log(sum) + max - (double)row[label];
        totals[1] += best == label ? 1.0 : 0.0;
        for (size_t c = 0; c < op->classes; c++) {
            double p = exp((double)row[c] - max) / sum;
            dlogits[b * op->classes + c] = (p - (c == label ? 1.0 : 0.0)) * (double)op->scale;
        }
    }
}

void ct_ref_sgd(const struct ct_sgd *op, const float *grad, double *param, double *momentum_buf)
{
    for (size_t i = 0; i < op->count; i++) {
        double g = (double)grad[i] + (double)op->weight_decay * param[i];
        momentum_buf[i] = (double)op->momentum * momentum_buf[i] + g;
        param[i] -= (double)op->lr * momentum_buf[i];
    }
}

void ct_ref_adamw(const struct ct_adamw *op, const float *grad, double *param, double *m, double *v)
{
    double b1 = (double)op->beta1, b2 = (double)op->beta2;
    double c1 = 1.0 - pow(b1, (double)op->step), c2 = 1.0 - pow(b2, (double)op->step);
    for (size_t i = 0; i < op->count; i++) {
        double g = (double)grad[i];
        param[i] *= 1.0 - (double)op->lr * (double)op->weight_decay;
        m[i] = b1 * m[i] + (1.0 - b1) * g;
        v[i] = b2 * v[i] + (1.0 - b2) * g * g;
        param[i] -= (double)op->lr / c1 * m[i] / (sqrt(v[i] / c2) + (double)op->eps);
    }
}
