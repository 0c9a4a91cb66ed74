/* SPDX-License-Identifier: Apache-2.0
 *
 * One row for each situation in which GPUs are given to workers; the machine is made up.
 */
#include "tests/lib/ct_test.h"

#include "launcher/binding/gpu_mask.h"

#include <stdio.h>

#define MASK CT_GPU_BIND_MASK
#define NONE CT_GPU_BIND_NONE

struct row {
    const char *name;
    struct ct_gpu_facts facts;
    struct ct_gpu_request request;
    int first;         /* local rank that `gets` begins with */
    const char *gets;  /* of the workers: "index", "index=token", "index/ranks", "-" */
    const char *notes; /* part of the note; NULL = none */
};

static const struct row rows[] = {
    {"plain GPUs, nothing asked", {.physical = 4}, {.workers = 4}, 0, "0 1 2 3", NULL},
    {"fewer workers than GPUs", {.physical = 4}, {.workers = 2}, 0, "0 1", NULL},
    {"no mask asked", {.physical = 2}, {.workers = 2, .bind = NONE}, 0, "0 1", NULL},
    {"mask", {.physical = 2}, {.workers = 2, .bind = MASK}, 0, "0=0* 0=1*", NULL},
    {"mask out of a list",
     {.physical = 8, .visible = "6, 3,GPU-ab"},
     {.workers = 3, .bind = MASK},
     0,
     "0=6 0=3 0=GPU-ab",
     NULL},
    {"a list alone", {.physical = 8, .visible = "6,3"}, {.workers = 2}, 0, "0 1", NULL},
    {"a driver of tomorrow",
     {.visible = "DEV:1/2,DEV:1/3"},
     {.workers = 2, .bind = MASK},
     0,
     "0=DEV:1/2 0=DEV:1/3",
     NULL},
    {"virtual local ranks",
     {.physical = 2, .visible = "1,0"},
     {.workers = 2, .virtual_local_rank = true},
     0,
     "0=1 0=0",
     NULL},
    {"virtual local ranks, nothing known",
     {0},
     {.workers = 3, .virtual_local_rank = true},
     0,
     "0=0* 0=1* 0=2*",
     NULL},
    {"HAMi-core", {.physical = 2, .hami = true}, {.workers = 2}, 0, "0 1", NULL},
    {"HAMi-core, mask asked",
     {.physical = 2, .hami = true},
     {.workers = 2, .bind = MASK},
     0,
     "0=0* 0=1*",
     "HAMi-core"},
    {"HAMi-core reads numbers only",
     {.physical = 2, .hami = true, .visible = "GPU-a,GPU-b"},
     {.workers = 2, .bind = MASK},
     0,
     "0=0* 0=1*",
     "HAMi-core"},
    {"HAMi-core, numbers of a list",
     {.physical = 4, .hami = true, .visible = "2,3"},
     {.workers = 2, .bind = MASK},
     0,
     "0=2 0=3",
     "HAMi-core"},
    {"MIG",
     {.physical = 1, .visible = "MIG-a,MIG-b", .mig_on = true},
     {.workers = 2},
     0,
     "0=MIG-a 0=MIG-b",
     NULL},
    {"MIG, as old drivers write it",
     {.physical = 1, .visible = "MIG-GPU-a/1/0,MIG-GPU-a/2/0"},
     {.workers = 2},
     0,
     "0=MIG-GPU-a/1/0 0=MIG-GPU-a/2/0",
     NULL},
    {"MIG in a container",
     {.physical = 1, .mig = "MIG-a,MIG-b", .mig_on = true},
     {.workers = 2},
     0,
     "0=MIG-a 0=MIG-b",
     NULL},
    {"MIG, no mask asked",
     {.physical = 1, .visible = "MIG-a,MIG-b"},
     {.workers = 2, .bind = NONE},
     0,
     "0 1",
     "only the first of the 2"},
    {"MIG without names", {.physical = 1, .mig_on = true}, {.workers = 1}, 0, "0", NULL},
    {"MIG without names, shared",
     {.physical = 1, .mig_on = true},
     {.workers = 2, .share = true},
     0,
     "0/2 0/2",
     "nvidia-smi -L"},
    {"one GPU in each task",
     {.physical = 1},
     {.workers = 1, .ranks_here = 4},
     3,
     "0",
     "one GPU of its own"},
    {"one GPU in each task, mask asked",
     {.physical = 8, .visible = "5"},
     {.workers = 1, .ranks_here = 4, .bind = MASK},
     3,
     "0",
     "one GPU of its own"},
    {"all GPUs in each task",
     {.physical = 4},
     {.workers = 1, .ranks_here = 4, .bind = MASK},
     3,
     "0=3*",
     NULL},
    {"all GPUs in each task, no mask",
     {.physical = 4},
     {.workers = 1, .ranks_here = 4},
     2,
     "2",
     NULL},
    {"Slurm with MPS",
     {.physical = 1, .visible = "0", .slurm_mps = true},
     {.workers = 2, .bind = MASK},
     0,
     "0/2 0/2",
     NULL},
    {"Slurm with MPS, one worker",
     {.physical = 1, .visible = "0", .slurm_mps = true},
     {.workers = 1},
     0,
     "0",
     NULL},
    {"a program for CPUs", {.physical = 2}, {.workers = 4}, 0, "- - - -", "none is assigned"},
    {"a program for CPUs, one MIG device",
     {.physical = 1, .visible = "MIG-a"},
     {.workers = 2},
     0,
     "- -",
     "none is assigned"},
    {"no GPU", {0}, {.workers = 2}, 0, "- -", NULL},
    {"no GPU to share", {0}, {.workers = 2, .share = true}, 0, "- -", NULL},
    {"GPUs hidden", {.physical = 2, .visible = ""}, {.workers = 2}, 0, "- -", NULL},
    {"a step without GPUs",
     {.physical = 2, .visible = "NoDevFiles"},
     {.workers = 2},
     0,
     "- -",
     NULL},
    {"shared", {.physical = 2}, {.workers = 5, .share = true}, 0, "0/3 1/2 0/3 1/2 0/3", NULL},
    {"shared and masked",
     {.physical = 4, .visible = "3,GPU-b"},
     {.workers = 3, .share = true, .bind = MASK},
     0,
     "0=3/2 0=GPU-b 0=3/2",
     NULL},
    {"sharing allowed, not needed", {.physical = 2}, {.workers = 2, .share = true}, 0, "0 1", NULL},
    {"shared virtual local ranks",
     {.physical = 1},
     {.workers = 2, .share = true, .virtual_local_rank = true},
     0,
     "0=0*/2 0=0*/2",
     NULL},
};

static struct ct_gpu_request complete(const struct ct_gpu_request *request)
{
    struct ct_gpu_request out = *request;
    if (out.ranks_here == 0) {
        out.ranks_here = out.workers;
    }
    return out;
}

/* "*" marks a number of our own counting. */
static void show(const struct ct_gpu_masks *masks, int local_rank, char *out, size_t size)
{
    struct ct_gpu_share share;
    char token[64] = "", ranks[16] = "";
    ct_gpu_masks_of(masks, local_rank, &share);
    if (share.token != NULL) {
        (void)snprintf(token, sizeof(token), "=%.*s%s", (int)share.token_len, share.token,
                       share.counted ? "*" : "");
    }
    if (share.ranks > 1) {
        (void)snprintf(ranks, sizeof(ranks), "/%d", share.ranks);
    }
    if (share.assigned) {
        (void)snprintf(out, size, "%d%s%s", share.index, token, ranks);
    } else {
        (void)snprintf(out, size, "-");
    }
}

static void every_situation_has_its_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        const struct ct_gpu_request request = complete(&row->request);
        struct ct_gpu_masks masks;
        struct ct_err err = {0};
        char all[256] = "";
        if (ct_gpu_masks_decide(&row->facts, &request, &masks, &err) != 0) {
            fail_msg("%s: %s", row->name, err.text);
        }
        for (int r = 0; r < request.workers; r++) {
            size_t used = strlen(all);
            char one[96];
            show(&masks, row->first + r, one, sizeof(one));
            (void)snprintf(all + used, sizeof(all) - used, "%s%s", r > 0 ? " " : "", one);
        }
        if (strcmp(all, row->gets) != 0) {
            fail_msg("%s: '%s' instead of '%s'", row->name, all, row->gets);
        }
        if (row->notes == NULL ? masks.note[0] != '\0' : strstr(masks.note, row->notes) == NULL) {
            fail_msg("%s: says '%s'", row->name, masks.note);
        }
    }
}

static void refusals_say_what_to_do(void **state)
{
    static const struct {
        struct ct_gpu_facts facts;
        struct ct_gpu_request request;
        const char *text;
    } refused[] = {
        {{.physical = 2},
         {.workers = 4, .bind = MASK},
         "--gpu-bind mask: 4 workers, but 2 GPUs are visible here; start 2, or let workers share "
         "with --share-gpu"},
        {{.physical = 8, .visible = "7"},
         {.workers = 2, .virtual_local_rank = true},
         "--virtual-local-rank: 2 workers, but 1 GPU is visible here: CUDA_VISIBLE_DEVICES=7; "
         "start "
         "1,"},
        {{.physical = 2},
         {.workers = 1, .ranks_here = 3, .wants_gpus = true},
         "--nproc-per-node gpu: 3 workers"},
        {{0}, {.workers = 1, .bind = MASK}, "no GPU is visible here"},
        {{.physical = 4, .visible = ""},
         {.workers = 1, .virtual_local_rank = true, .share = true},
         "no GPU is visible here (/dev/nvidia*, CUDA_VISIBLE_DEVICES=)"},
        {{.physical = 1, .mig_on = true}, {.workers = 1, .bind = MASK}, "nvidia-smi -L"},
        {{.physical = 2, .visible = "0,5"}, {.workers = 2, .bind = MASK}, "1 GPU is visible"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const struct ct_gpu_request request = complete(&refused[i].request);
        struct ct_gpu_masks masks = {.devices = 77};
        struct ct_err err = {0};
        int rc = ct_gpu_masks_decide(&refused[i].facts, &request, &masks, &err);
        assert_int_equal(rc, CT_ENOENT);
        assert_int_equal(masks.devices, 77);
        if (strstr(err.text, refused[i].text) == NULL) {
            fail_msg("says '%s'", err.text);
        }
    }
}

static void lists_end_at_what_is_no_device(void **state)
{
    static const struct {
        const char *list;
        int physical, count;
    } lists[] = {
        {"", 0, 0},           {"0,1", 0, 2},       {" 0 , GPU-x ", 0, 2}, {"0,-1,1", 0, 1},
        {"0,,1", 0, 1},       {"0,1,", 0, 2},      {"0,9", 0, 2},         {"0,9", 9, 1},
        {"NoDevFiles", 0, 0}, {"MIG-a/1/2", 1, 1}, {"x", 1, 1},           {"99999999999999", 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        int count = ct_gpu_entries(lists[i].list, lists[i].physical);
        if (count != lists[i].count) {
            fail_msg("'%s' gives %d", lists[i].list, count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_situation_has_its_rule),
        cmocka_unit_test(refusals_say_what_to_do),
        cmocka_unit_test(lists_end_at_what_is_no_device),
    };
    return cmocka_run_group_tests_name("gpu_mask", tests, NULL, NULL);
}
