/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of epochs, skips all others, lays out the panels and writes SVG text. Where
 * several runs have written to the file, an epoch takes the place of earlier ones from its number
 * on. A file without lines of epochs is CT_ENOENT.
 */
#include "trainer/show/plot.h"

#include "common/file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define METRICS_MAX ((size_t)256 << 20)
/* Far beyond what --epochs takes; all whole numbers up to there are doubles. */
#define EPOCH_MAX 1e9

/* Of the drawing, in pixels. */
#define WIDTH 720
#define PANEL 190
#define LEFT 80
#define RIGHT 20
#define TOP 34
#define BOTTOM 30
#define TICKS 5

enum { LOSS, TEST_LOSS, ACCURACY, RATE, SERIES };

static const char *const keys[SERIES] = {"loss", "test_loss", "test_accuracy", "samples_per_s"};

static const struct panel {
    const char *title;
    int series[2]; /* -1: only one */
    const char *names[2];
} panels[] = {
    {"loss", {LOSS, TEST_LOSS}, {"training", "test"}},
    {"test accuracy", {ACCURACY, -1}, {"test", ""}},
    {"samples per second", {RATE, -1}, {"training", ""}},
};
#define PANELS (sizeof panels / sizeof panels[0])

static const char *const colours[2] = {"#1f6feb", "#d4691e"};

struct point {
    double epoch, value[SERIES];
};

static bool read_point(const char *line, struct point *out)
{
    cJSON *root = cJSON_Parse(line);
    const cJSON *event = cJSON_GetObjectItemCaseSensitive(root, "event");
    const cJSON *epoch = cJSON_GetObjectItemCaseSensitive(root, "epoch");
    bool ok = cJSON_IsString(event) && strcmp(event->valuestring, "epoch") == 0 &&
              cJSON_IsNumber(epoch) && fabs(epoch->valuedouble) <= EPOCH_MAX;
    for (size_t i = 0; ok && i < SERIES; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, keys[i]);
        ok = cJSON_IsNumber(item) && isfinite(item->valuedouble);
        out->value[i] = ok ? item->valuedouble : 0;
    }
    out->epoch = ok ? epoch->valuedouble : 0;
    cJSON_Delete(root);
    return ok;
}

/* Points with rising epochs. */
static int read_points(char *text, struct ct_buf *out)
{
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        char *end = strchrnul(text, '\n');
        bool last = *end == '\0';
        struct point point;
        *end = '\0';
        if (read_point(text, &point)) {
            const struct point *points = (const struct point *)(const void *)ct_buf_bytes(out);
            size_t count = out->len / sizeof point;
            while (count > 0 && points[count - 1].epoch >= point.epoch) {
                count--;
            }
            out->len = count * sizeof point;
            rc = ct_buf_append(out, &point, sizeof point);
        }
        text = last ? end : end + 1;
    }
    return rc;
}

/* 1, 2 or 5 times a power of ten, so that about `ticks` of them make up `span`. */
static double step_of(double span, int ticks)
{
    double raw = span / ticks, power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

struct axes {
    double x0, x1, y0, y1; /* values at the panel's edges */
    double top;            /* of the panel, in pixels */
};

static double x_of(const struct axes *a, double x)
{
    return LEFT + (x - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct axes *a, double y)
{
    return a->top + TOP + (a->y1 - y) / (a->y1 - a->y0) * (PANEL - TOP - BOTTOM);
}

static struct axes make_axes(const struct panel *panel, size_t place, const struct point *points,
                             size_t count)
{
    struct axes a = {.x0 = points[0].epoch,
                     .x1 = points[count - 1].epoch,
                     .y0 = INFINITY,
                     .y1 = -INFINITY,
                     .top = (double)(place * PANEL)};
    for (size_t i = 0; i < count; i++) {
        for (size_t s = 0; s < 2 && panel->series[s] >= 0; s++) {
            a.y0 = fmin(a.y0, points[i].value[panel->series[s]]);
            a.y1 = fmax(a.y1, points[i].value[panel->series[s]]);
        }
    }
    /* A single point or a constant still needs room around it. */
    a.x1 += a.x1 > a.x0 ? 0 : 1;
    double margin = a.y1 > a.y0 ? 0.05 * (a.y1 - a.y0) : 0.5 * fabs(a.y1) + 1e-9;
    /* Or neighbouring ticks could be the same number. */
    margin = fmax(margin, 1e-5 * fabs(a.y1));
    a.y0 -= margin;
    a.y1 += margin;
    return a;
}

static int draw_grid(const struct panel *panel, const struct axes *a, struct ct_buf *out)
{
    double bottom = y_of(a, a->y0);
    int rc = ct_buf_printf(out, "<text x=\"%d\" y=\"%.0f\" class=\"title\">%s</text>\n", LEFT,
                           a->top + TOP - 12, panel->title);
    double step = step_of(a->y1 - a->y0, TICKS);
    for (double y = ceil(a->y0 / step) * step; rc == 0 && y <= a->y1; y += step) {
        rc = ct_buf_printf(out,
                           "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                           "class=\"left\">%.6g</text>\n",
                           LEFT, y_of(a, y), WIDTH - RIGHT, LEFT - 8, y_of(a, y) + 4,
                           fabs(y) < step / 1e6 ? 0 : y);
    }
    step = fmax(1, step_of(a->x1 - a->x0, 2 * TICKS));
    for (double x = ceil(a->x0 / step) * step; rc == 0 && x <= a->x1; x += step) {
        rc = ct_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"below\">%.6g</text>\n",
                           x_of(a, x), bottom + 16, x);
    }
    return rc;
}

static int draw_lines(const struct panel *panel, const struct axes *a, const struct point *points,
                      size_t count, struct ct_buf *out)
{
    int rc = 0;
    for (size_t s = 0; rc == 0 && s < 2 && panel->series[s] >= 0; s++) {
        rc = ct_buf_printf(out, "<polyline stroke=\"%s\" points=\"", colours[s]);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            rc = ct_buf_printf(out, "%s%.1f,%.1f", i > 0 ? " " : "", x_of(a, points[i].epoch),
                               y_of(a, points[i].value[panel->series[s]]));
        }
        if (rc == 0) {
            rc = ct_buf_printf(out,
                               "\"/><text x=\"%zu\" y=\"%.0f\" fill=\"%s\" class=\"left\">%s"
                               "</text>\n",
                               WIDTH - RIGHT - 70 * (1 - s), a->top + TOP - 12, colours[s],
                               panel->names[s]);
        }
    }
    return rc;
}

static int draw(const struct point *points, size_t count, struct ct_buf *out)
{
    int rc = ct_buf_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %zu\" width=\"%d\" "
        "height=\"%zu\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<style>polyline{fill:none;stroke-width:2;stroke-linejoin:round}"
        ".grid{stroke:#ddd}.title{font-weight:bold}.left{text-anchor:end}"
        ".below{text-anchor:middle}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        WIDTH, PANELS * PANEL + 10, WIDTH, PANELS * PANEL + 10);
    for (size_t p = 0; rc == 0 && p < PANELS; p++) {
        struct axes axes = make_axes(&panels[p], p, points, count);
        rc = draw_grid(&panels[p], &axes, out);
        if (rc == 0) {
            rc = draw_lines(&panels[p], &axes, points, count, out);
        }
    }
    return rc == 0 ? ct_buf_printf(out,
                                   "<text x=\"%d\" y=\"%zu\" class=\"left\">epoch</text>\n"
                                   "</svg>\n",
                                   WIDTH - RIGHT, PANELS * PANEL + 4)
                   : rc;
}

int ct_plot_draw(char *text, struct ct_buf *out, struct ct_err *err)
{
    struct ct_buf points = CT_BUF_INIT;
    int rc = read_points(text, &points);
    size_t count = points.len / sizeof(struct point);
    if (rc == 0 && count == 0) {
        ct_buf_fini(&points);
        return ct_err_set(err, CT_ENOENT, "holds no lines of epochs, as train --metrics writes");
    }
    if (rc == 0) {
        rc = draw((const struct point *)(const void *)ct_buf_bytes(&points), count, out);
    }
    ct_buf_fini(&points);
    return rc == 0 ? 0 : ct_err_set(err, rc, "out of memory");
}

int ct_plot_file(const char *metrics, const char *svg, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT, drawing = CT_BUF_INIT;
    int rc = ct_file_read(metrics, METRICS_MAX, &text, err);
    if (rc != 0) {
        goto out;
    }
    if (ct_buf_append(&text, "", 1) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    } else {
        rc = ct_plot_draw((char *)ct_buf_bytes(&text), &drawing, err);
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s", metrics);
        goto out;
    }
    rc = ct_file_replace(svg, ct_buf_bytes(&drawing), drawing.len, err);
out:
    ct_buf_fini(&text);
    ct_buf_fini(&drawing);
    return rc;
}
