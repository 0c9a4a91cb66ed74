/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of epochs and steps, skips all others, lays out the panels and writes SVG text.
 * Where a training was started again and wrote to the same file, a line takes the place of those
 * from its number on. A file without lines of epochs is CT_ENOENT.
 *
 * Who frees: fini_runs(), what read_run() has collected.
 */
#include "trainer/show/plot.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/text.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define METRICS_MAX ((size_t)256 << 20)
/* More than epochs and steps reach. A double holds every whole number up to here. */
#define NUMBER_MAX 1e15

/* Of the drawing, in pixels. */
#define WIDTH 720
#define PANEL 190
#define LEFT 80
#define RIGHT 20
#define TOP 34
#define BOTTOM 30
#define LEGEND 18
#define TICKS 5

/* Characters of a run's name that are shown: its end, which tells runs apart. */
#define NAME_SHOWN 90

/* What is collected of a run. The last two come from lines of steps. */
enum { LOSS, TEST_LOSS, ACCURACY, RATE, STEP_LOSS, STEP_RATE, SERIES };

static const struct panel {
    const char *title;
    int series[2]; /* -1: only one */
    const char *names[2];
    bool from_zero;
} panels[] = {
    {"loss", {LOSS, TEST_LOSS}, {"training", "test"}, false},
    {"test accuracy", {ACCURACY, -1}, {"test", ""}, false},
    {"samples per second", {RATE, -1}, {"training", ""}, true},
};
#define PANELS (sizeof panels / sizeof panels[0])

/* Of the series of one run, or of several runs. Readable on white, and for the colour-blind. */
static const char *const colours[CT_PLOT_RUNS_MAX] = {
    "#1f6feb", "#d4691e", "#2e8b57", "#9932cc", "#8b5a2b", "#e0529c", "#606060", "#a09000",
};

struct point {
    double epoch, step; /* NAN: the line does not say */
    double value;
};

struct run {
    const char *name;
    struct ct_buf points[SERIES];
};

struct plot {
    struct run *runs;
    size_t count;
    bool steps; /* the horizontal axis: all lines of epochs name their step */
};

/* ---- reading --------------------------------------------------------------------------------- */

static double number_of(const cJSON *line, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
    return cJSON_IsNumber(item) && fabs(item->valuedouble) <= NUMBER_MAX ? item->valuedouble
                                                                         : (double)NAN;
}

static const struct point *points_of(const struct run *run, int series, size_t *count)
{
    *count = run->points[series].len / sizeof(struct point);
    return (const struct point *)(const void *)ct_buf_bytes(&run->points[series]);
}

/* Adds a point behind those that come before it. */
static int add_point(struct run *run, int series, const struct point *point)
{
    bool by_epoch = isfinite(point->epoch);
    size_t count;
    const struct point *points = points_of(run, series, &count);
    while (count > 0 && (by_epoch ? points[count - 1].epoch >= point->epoch
                                  : points[count - 1].step >= point->step)) {
        count--;
    }
    run->points[series].len = count * sizeof *point;
    return ct_buf_append(&run->points[series], point, sizeof *point);
}

static int add_epoch(struct run *run, const cJSON *line)
{
    static const char *const keys[] = {"loss", "test_loss", "test_accuracy", "samples_per_s"};
    double values[4];
    struct point point = {.epoch = number_of(line, "epoch"), .step = number_of(line, "step")};
    bool whole = isfinite(point.epoch);
    for (int i = 0; i < 4; i++) {
        values[i] = number_of(line, keys[i]);
        whole = whole && isfinite(values[i]);
    }
    int rc = 0;
    for (int i = 0; whole && rc == 0 && i < 4; i++) {
        point.value = values[i];
        rc = add_point(run, LOSS + i, &point);
    }
    return rc;
}

static int add_step(struct run *run, const cJSON *line)
{
    struct point point = {.epoch = (double)NAN, .step = number_of(line, "step")};
    double loss = number_of(line, "loss"), rate = number_of(line, "samples_per_s");
    if (!isfinite(point.step) || !isfinite(loss) || !isfinite(rate)) {
        return 0;
    }
    point.value = loss;
    int rc = add_point(run, STEP_LOSS, &point);
    if (rc != 0) {
        return rc;
    }
    point.value = rate;
    return add_point(run, STEP_RATE, &point);
}

static int read_run(char *text, struct run *run)
{
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        char *end = strchrnul(text, '\n');
        bool last = *end == '\0';
        *end = '\0';
        cJSON *line = cJSON_Parse(text);
        const cJSON *event = cJSON_GetObjectItemCaseSensitive(line, "event");
        if (cJSON_IsString(event) && strcmp(event->valuestring, "epoch") == 0) {
            rc = add_epoch(run, line);
        } else if (cJSON_IsString(event) && strcmp(event->valuestring, "step") == 0) {
            rc = add_step(run, line);
        }
        cJSON_Delete(line);
        text = last ? end : end + 1;
    }
    return rc;
}

static void fini_runs(struct run *runs, size_t count)
{
    for (size_t r = 0; r < count; r++) {
        for (int s = 0; s < SERIES; s++) {
            ct_buf_fini(&runs[r].points[s]);
        }
    }
}

/* ---- what is drawn --------------------------------------------------------------------------- */

/* Lines of steps say more than those of epochs, where the axis has a place for them. */
static int source_of(const struct plot *plot, const struct run *run, int series)
{
    if (plot->steps && series == LOSS && run->points[STEP_LOSS].len > 0) {
        return STEP_LOSS;
    }
    return plot->steps && series == RATE && run->points[STEP_RATE].len > 0 ? STEP_RATE : series;
}

static double place_of(const struct plot *plot, const struct point *point)
{
    return plot->steps ? point->step : point->epoch;
}

static bool all_name_steps(const struct run *runs, size_t count)
{
    for (size_t r = 0; r < count; r++) {
        size_t points;
        const struct point *p = points_of(&runs[r], LOSS, &points);
        for (size_t i = 0; i < points; i++) {
            if (!isfinite(p[i].step)) {
                return false;
            }
        }
    }
    return true;
}

/* Returns 1, 2 or 5 times a power of ten, so that about `ticks` steps make up `span`. */
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

/* Widens the axes to the points of one series of all runs, in height only if it is in the panel. */
static void include(const struct plot *plot, int series, bool in_panel, struct axes *a)
{
    for (size_t r = 0; r < plot->count; r++) {
        size_t count;
        const struct point *points =
            points_of(&plot->runs[r], source_of(plot, &plot->runs[r], series), &count);
        for (size_t i = 0; i < count; i++) {
            a->x0 = fmin(a->x0, place_of(plot, &points[i]));
            a->x1 = fmax(a->x1, place_of(plot, &points[i]));
            a->y0 = in_panel ? fmin(a->y0, points[i].value) : a->y0;
            a->y1 = in_panel ? fmax(a->y1, points[i].value) : a->y1;
        }
    }
}

/* All panels have the same horizontal axis. */
static struct axes make_axes(const struct plot *plot, const struct panel *panel, double top)
{
    struct axes a = {.x0 = INFINITY, .x1 = -INFINITY, .y0 = INFINITY, .y1 = -INFINITY, .top = top};
    for (int s = LOSS; s <= RATE; s++) {
        include(plot, s, s == panel->series[0] || s == panel->series[1], &a);
    }
    /* Widens the range of a single point or a constant. */
    a.x1 += a.x1 > a.x0 ? 0 : 1;
    double margin = a.y1 > a.y0 ? 0.05 * (a.y1 - a.y0) : 0.5 * fabs(a.y1) + 1e-9;
    /* Or neighbouring ticks could be the same number. */
    margin = fmax(margin, 1e-5 * fabs(a.y1));
    a.y0 = panel->from_zero ? fmin(0, a.y0) : a.y0 - margin;
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

/* One run's line of one series, dashed where several runs have two series in a panel. */
static int draw_line(const struct plot *plot, size_t run, int series, const char *colour,
                     bool dashed, const struct axes *a, struct ct_buf *out)
{
    size_t count;
    const struct point *points =
        points_of(&plot->runs[run], source_of(plot, &plot->runs[run], series), &count);
    ct_buf_addf(out, "<polyline stroke=\"%s\"%s points=\"", colour,
                dashed ? " stroke-dasharray=\"5 4\"" : "");
    for (size_t i = 0; i < count; i++) {
        ct_buf_addf(out, "%s%.1f,%.1f", i > 0 ? " " : "", x_of(a, place_of(plot, &points[i])),
                    y_of(a, points[i].value));
    }
    ct_buf_addf(out, "\"/>\n");
    return ct_buf_status(out);
}

static int draw_panel(const struct plot *plot, const struct panel *panel, double top,
                      struct ct_buf *out)
{
    const struct axes a = make_axes(plot, panel, top);
    bool several = plot->count > 1;
    int rc = draw_grid(panel, &a, out);
    for (size_t s = 0; rc == 0 && s < 2 && panel->series[s] >= 0; s++) {
        for (size_t r = 0; rc == 0 && r < plot->count; r++) {
            rc = draw_line(plot, r, panel->series[s], colours[several ? r : s], several && s > 0,
                           &a, out);
        }
        ct_buf_addf(out, "<text x=\"%zu\" y=\"%.0f\" fill=\"%s\" class=\"left\">%s%s</text>\n",
                    WIDTH - RIGHT - 70 * (1 - s), top + TOP - 12, several ? "#333" : colours[s],
                    panel->names[s], several && s > 0 ? " - -" : "");
    }
    return rc;
}

/* The end of a name, harmless for a terminal and for SVG. */
static void add_name(const char *name, struct ct_buf *out)
{
    char shown[NAME_SHOWN + 1];
    size_t len = strlen(name), from = len > NAME_SHOWN ? len - NAME_SHOWN : 0;
    while ((name[from] & 0xc0) == 0x80) { /* not into the midst of a character */
        from++;
    }
    (void)snprintf(shown, sizeof shown, "%s", name + from);
    ct_text_clean(shown);
    for (const char *c = shown; *c != '\0'; c++) {
        if (strchr("<>&\"'", *c) != NULL) {
            ct_buf_addf(out, "&#%d;", *c);
        } else {
            ct_buf_add(out, c, 1);
        }
    }
}

static void draw_legend(const struct plot *plot, struct ct_buf *out)
{
    for (size_t r = 0; plot->count > 1 && r < plot->count; r++) {
        ct_buf_addf(out, "<text x=\"%d\" y=\"%zu\" fill=\"%s\">", LEFT, (r + 1) * LEGEND,
                    colours[r]);
        add_name(plot->runs[r].name, out);
        ct_buf_addf(out, "</text>\n");
    }
}

static int draw(const struct plot *plot, struct ct_buf *out)
{
    size_t above = plot->count > 1 ? plot->count * LEGEND : 0;
    size_t height = above + PANELS * PANEL + 10;
    ct_buf_addf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %zu\" width=\"%d\" "
                "height=\"%zu\" font-family=\"sans-serif\" font-size=\"12\">\n"
                "<style>polyline{fill:none;stroke-width:2;stroke-linejoin:round}"
                ".grid{stroke:#ddd}.title{font-weight:bold}.left{text-anchor:end}"
                ".below{text-anchor:middle}</style>\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                WIDTH, height, WIDTH, height);
    draw_legend(plot, out);
    int rc = ct_buf_status(out);
    for (size_t p = 0; rc == 0 && p < PANELS; p++) {
        rc = draw_panel(plot, &panels[p], (double)(above + p * PANEL), out);
    }
    ct_buf_addf(out, "<text x=\"%d\" y=\"%zu\" class=\"left\">%s</text>\n</svg>\n", WIDTH - RIGHT,
                height - 6, plot->steps ? "step" : "epoch");
    return rc != 0 ? rc : ct_buf_status(out);
}

int ct_plot_draw(const struct ct_plot_source *sources, size_t count, struct ct_buf *out,
                 struct ct_err *err)
{
    struct run runs[CT_PLOT_RUNS_MAX] = {{0}};
    int rc = 0;
    if (count > CT_PLOT_RUNS_MAX) {
        return ct_err_set(err, CT_ELIMIT, "more than %d runs", CT_PLOT_RUNS_MAX);
    }
    for (size_t r = 0; r < count; r++) {
        runs[r].name = sources[r].name;
        if (read_run(sources[r].text, &runs[r]) != 0) {
            rc = ct_err_set(err, CT_ENOMEM, "out of memory");
            goto out;
        }
        if (runs[r].points[LOSS].len == 0) {
            rc = ct_err_set(err, CT_ENOENT,
                            "%s: holds no lines of epochs, as train --metrics writes",
                            sources[r].name);
            goto out;
        }
    }
    const struct plot plot = {runs, count, all_name_steps(runs, count)};
    if (draw(&plot, out) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
out:
    fini_runs(runs, count);
    return rc;
}

/* Splits "A,B" in place. */
static int split_names(char *list, struct ct_plot_source *out, size_t *count, struct ct_err *err)
{
    *count = 0;
    for (char *name; (name = strsep(&list, ",")) != NULL; ++*count) {
        if (name[0] == '\0') {
            return ct_err_set(err, CT_EINVAL, "--plot: a name is empty");
        }
        if (*count == CT_PLOT_RUNS_MAX) {
            return ct_err_set(err, CT_ELIMIT, "--plot: more than %d files", CT_PLOT_RUNS_MAX);
        }
        out[*count].name = name;
    }
    return 0;
}

int ct_plot_file(const char *metrics, const char *svg, struct ct_err *err)
{
    struct ct_buf texts[CT_PLOT_RUNS_MAX] = {CT_BUF_INIT}, drawing = CT_BUF_INIT;
    struct ct_plot_source sources[CT_PLOT_RUNS_MAX] = {{0}};
    size_t count = 0;
    char *names = ct_strdup(metrics);
    int rc = names != NULL ? split_names(names, sources, &count, err)
                           : ct_err_set(err, CT_ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = ct_file_read(sources[i].name, METRICS_MAX, &texts[i], err);
        if (rc == 0 && ct_buf_append(&texts[i], "", 1) != 0) {
            rc = ct_err_set(err, CT_ENOMEM, "%s: out of memory", sources[i].name);
        }
        sources[i].text = (char *)ct_buf_bytes(&texts[i]);
    }
    if (rc != 0) {
        goto out;
    }
    rc = ct_plot_draw(sources, count, &drawing, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_file_replace(svg, ct_buf_bytes(&drawing), drawing.len, err);
out:
    for (size_t i = 0; i < CT_PLOT_RUNS_MAX; i++) {
        ct_buf_fini(&texts[i]);
    }
    ct_buf_fini(&drawing);
    ct_free(names);
    return rc;
}
