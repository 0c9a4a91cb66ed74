/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers are dealt out so that the costliest stage is as cheap as possible; the actions of a stage
 * follow from its number alone.
 */
#include "trainer/model/pipeline_schedule.h"

/* Multiplications per sample: outputs, gradients of the weights, and those of the input, which the
 * first layer does not need. */
static double cost_of(const struct ct_layout *layout, size_t l)
{
    const struct ct_layer *layer = &layout->layer[l];
    return (double)layer->in * (double)layer->out * (l == 0 ? 2.0 : 3.0);
}

/* best[l]: the least that the costliest of the stages so far can have when they share layers
 * [0, l); cut[s][l]: where the last of s + 1 stages begins then. */
void ct_pipe_layers(const struct ct_layout *layout, size_t stages, size_t s, size_t *first,
                    size_t *end)
{
    size_t layers = layout->layer_count, cut[CT_LAYERS_MAX][CT_LAYERS_MAX + 1] = {{0}};
    double best[CT_LAYERS_MAX + 1] = {0};
    CT_ASSERT(stages >= 1 && stages <= layers && s < stages);
    for (size_t l = 1; l <= layers; l++) {
        best[l] = best[l - 1] + cost_of(layout, l - 1);
    }
    for (size_t n = 1; n < stages; n++) {
        /* From above, since best[] of fewer layers is still that of fewer stages then. */
        for (size_t l = layers; l > n; l--) {
            double last = 0, least = -1;
            for (size_t at = l - 1; at >= n; at--) {
                last += cost_of(layout, at);
                double most = last > best[at] ? last : best[at];
                if (least < 0 || most < least) {
                    least = most;
                    cut[n][l] = at;
                }
            }
            best[l] = least;
        }
    }
    *end = layers;
    for (size_t n = stages - 1; n > s; n--) {
        *end = cut[n][*end];
    }
    *first = s > 0 ? cut[s][*end] : 0;
}

struct ct_span ct_pipe_span(const struct ct_layout *layout, size_t stages, size_t s)
{
    size_t first, end;
    struct ct_layout layers;
    ct_pipe_layers(layout, stages, s, &first, &end);
    ct_layout_stage(layout, first, end, &layers);
    return (struct ct_span){.first = layout->layer[first].weight, .count = layers.count};
}

/* Forward passes ahead of the first backward pass, without the one that it follows on. */
static size_t lead_of(size_t stages, size_t s, size_t micros)
{
    size_t behind = stages - 1 - s;
    return behind < micros ? behind : micros;
}

struct ct_pipe_action ct_pipe_action(size_t stages, size_t s, size_t micros, size_t i)
{
    size_t lead = lead_of(stages, s, micros), steady = 2 * (micros - lead);
    if (i < lead) {
        return (struct ct_pipe_action){false, i};
    }
    if (i - lead < steady) {
        size_t pair = (i - lead) / 2;
        bool backward = (i - lead) % 2 == 1;
        return (struct ct_pipe_action){backward, backward ? pair : lead + pair};
    }
    return (struct ct_pipe_action){true, i - micros};
}

size_t ct_pipe_depth(size_t stages, size_t s, size_t micros)
{
    size_t lead = lead_of(stages, s, micros);
    return lead < micros ? lead + 1 : micros;
}
