/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: look at the machine, in a child, since a check may never end; tell the others; play
 * the rounds; hear or give the verdict; remove the keys; write the result.
 *
 * A machine that is not fit ends the generation, and this process on all machines. So node rank 0
 * writes the result, with the table, before it tells the verdict: its agent reads it even then.
 *
 * Failure modes: a machine that takes no part ends the preflight of all, with its node rank. One
 * that dies is noticed by the membership, which ends the generation, and with it this process.
 */
#include "launcher/preflight/preflight_probe.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/num.h"
#include "common/text.h"
#include "launcher/preflight/preflight_here.h"
#include "launcher/preflight/preflight_json.h"
#include "launcher/preflight/preflight_net.h"
#include "launcher/preflight/preflight_table.h"
#include "rendezvous/client/client.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/sock.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The checks of one machine take milliseconds, NVML may take seconds when the driver was idle. */
#define LOOK_MS 15000
/* All machines are started at about the same time, and each looks at itself first. */
#define ROWS_MS (LOOK_MS + 15000)
#define ROUND_MS (CT_PREFLIGHT_PAIR_MS + 20000)
/* Any other answer of the store. */
#define STORE_MS 30000
#define KEY_MAX 96
#define NODES_MAX (1 << 20)

struct probe {
    int generation, nodes, node_rank;
    const char *master_addr;
    uint16_t master_port;
    struct ct_preflight_limits limits;
    const char *folder;
    struct ct_preflight_machine here;
    struct ct_client *store;
    int listener;
    unsigned char secret[CT_PREFLIGHT_SECRET];
    int *parts; /* node ranks of the machines that take part, by index */
    int count, index;
    cJSON *result;
    bool said; /* the result is written */
};

bool ct_preflight_is_probe(char *const *argv)
{
    return argv[0] != NULL && strcmp(argv[0], CT_PREFLIGHT_PROGRAM) == 0;
}

static int read_words(char *const *argv, struct probe *probe, struct ct_err *err)
{
    struct ct_preflight_machine *here = &probe->here;
    int words = 0, port = 0, takes_part = 0;
    while (words <= CT_PREFLIGHT_WORDS && argv[words] != NULL) {
        words++;
    }
    if (words != CT_PREFLIGHT_WORDS ||
        ct_parse_int(argv[CT_PREFLIGHT_GENERATION], 0, INT_MAX, &probe->generation) != 0 ||
        ct_parse_int(argv[CT_PREFLIGHT_NODES], 0, NODES_MAX, &probe->nodes) != 0 ||
        ct_parse_int(argv[CT_PREFLIGHT_NODE_RANK], 0, NODES_MAX, &probe->node_rank) != 0 ||
        ct_parse_int(argv[CT_PREFLIGHT_MASTER_PORT], 0, 65535, &port) != 0 ||
        ct_parse_int(argv[CT_PREFLIGHT_WORKERS], 1, INT_MAX, &here->workers) != 0 ||
        ct_parse_int(argv[CT_PREFLIGHT_TAKES_PART], 0, 1, &takes_part) != 0) {
        return ct_err_set(err, CT_EINVAL, "%s is for ctrun itself", CT_PREFLIGHT_PROGRAM);
    }
    here->node_rank = probe->node_rank;
    here->takes_part = takes_part != 0;
    probe->master_addr = argv[CT_PREFLIGHT_MASTER_ADDR];
    probe->master_port = (uint16_t)port;
    probe->folder = argv[CT_PREFLIGHT_FOLDER][0] != '\0' ? argv[CT_PREFLIGHT_FOLDER] : NULL;
    (void)snprintf(here->host, sizeof(here->host), "%s", argv[CT_PREFLIGHT_HOST]);
    (void)snprintf(here->address, sizeof(here->address), "%s", argv[CT_PREFLIGHT_ADDRESS]);
    const char *limits = argv[CT_PREFLIGHT_LIMITS];
    (void)snprintf(here->limits, sizeof(here->limits), "%s", limits);
    return limits[0] == '\0' ? 0 : ct_preflight_limits_parse(limits, &probe->limits, err);
}

/* ---- this machine --------------------------------------------------------------------------- */

/* In the child: names the check that begins. */
static void say_stage(void *data, const char *name)
{
    char line[CT_PREFLIGHT_STAGE_MAX + 2];
    int len = snprintf(line, sizeof(line), "@%.*s\n", CT_PREFLIGHT_STAGE_MAX - 1, name);
    if (ct_fd_write_all(*(const int *)data, line, (size_t)len) != 0) {
        _exit(0); /* nobody hears */
    }
}

/* Looks at this machine and writes what it finds. It runs in the child. */
static void look(const struct probe *probe, int out)
{
    struct ct_preflight_places places = ct_preflight_places_here;
    struct ct_preflight_machine machine = probe->here;
    struct ct_buf text = CT_BUF_INIT;
    places.folders[0] = ".";
    places.folders[1] = probe->folder;
    places.stage = say_stage;
    places.data = &out;
    ct_preflight_look(&places, &machine);
    bool told = ct_preflight_machine_write(&machine, &text) == 0 &&
                ct_fd_write_all(out, ct_buf_bytes(&text), text.len) == 0;
    ct_buf_fini(&text);
    _exit(told ? 0 : 1);
}

/* Reads what the child writes, to its end or until the time is over. */
static void hear(int from, struct ct_buf *text)
{
    int64_t deadline_ns = ct_deadline_in(NULL, LOOK_MS);
    for (;;) {
        char bytes[4096];
        struct pollfd readable = {.fd = from, .events = POLLIN};
        int left = ct_deadline_left_ms(NULL, deadline_ns);
        if (left == 0 || (poll(&readable, 1, left) < 0 && errno != EINTR)) {
            return;
        }
        if (readable.revents == 0) {
            continue;
        }
        ssize_t got = read(from, bytes, sizeof(bytes));
        if (got <= 0) {
            return;
        }
        ct_buf_add(text, bytes, (size_t)got);
    }
}

/* Takes the row that follows the stages; without one, the last stage has not ended. */
static void take_look(const char *text, struct probe *probe)
{
    char stage[CT_PREFLIGHT_STAGE_MAX] = "the machine";
    struct ct_err unused = {0};
    while (*text == '@') {
        int len = (int)strcspn(text, "\n");
        (void)snprintf(stage, sizeof(stage), "%.*s", len > 0 ? len - 1 : 0, text + 1);
        text += text[len] == '\n' ? len + 1 : len;
    }
    if (ct_preflight_machine_read(text, &probe->here, &unused) != 0) {
        memcpy(probe->here.stuck, stage, sizeof(stage));
    }
}

static int look_here(struct probe *probe, struct ct_err *err)
{
    int ends[2];
    struct ct_buf text = CT_BUF_INIT;
    if (pipe(ends) != 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot make a pipe");
    }
    pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        look(probe, ends[1]);
    }
    (void)close(ends[1]);
    if (child < 0) {
        int rc = ct_err_sys(err, CT_EIO, errno, "cannot make a process");
        (void)close(ends[0]);
        return rc;
    }
    hear(ends[0], &text);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, WNOHANG); /* one that is stuck in the kernel never ends */
    const char *said = ct_buf_cstr(&text);
    take_look(said != NULL ? said : "", probe);
    (void)close(ends[0]);
    ct_buf_fini(&text);
    return 0;
}

/* ---- the store ------------------------------------------------------------------------------ */

static const char *key_of(const struct probe *probe, char out[KEY_MAX], const char *what,
                          int number)
{
    (void)snprintf(out, KEY_MAX, "ctrun/preflight/%d/%s/%d", probe->generation, what, number);
    return out;
}

static int put(struct probe *probe, const char *what, int number, struct ct_buf *text,
               struct ct_err *err)
{
    char key[KEY_MAX];
    int rc = ct_buf_status(text);
    if (rc != 0) {
        return ct_err_set(err, rc, "out of memory");
    }
    return ct_client_set(probe->store, key_of(probe, key, what, number), ct_buf_bytes(text),
                         text->len, err);
}

/* Appends nothing to *text, but sets it. */
static int get(struct probe *probe, const char *what, int number, int64_t timeout_ms,
               struct ct_buf *text, struct ct_err *err)
{
    char key[KEY_MAX];
    ct_buf_reset(text);
    int rc = ct_client_get(probe->store, key_of(probe, key, what, number), timeout_ms, text, err);
    if (rc != 0) {
        return rc;
    }
    return ct_buf_cstr(text) != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

/* Tells what this machine has found of itself. */
static int put_row(struct probe *probe, const char *what, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_preflight_machine_write(&probe->here, &text) == 0
                 ? put(probe, what, probe->node_rank, &text, err)
                 : ct_err_set(err, CT_ENOMEM, "out of memory");
    ct_buf_fini(&text);
    return rc;
}

/* Gives what another machine has found of itself. */
static int get_row(struct probe *probe, const char *what, int node_rank, int64_t timeout_ms,
                   struct ct_preflight_machine *out, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = get(probe, what, node_rank, timeout_ms, &text, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_preflight_machine_read(ct_buf_cstr(&text), out, err);
    if (rc != 0) {
        rc = ct_err_wrap(err, "node rank %d", node_rank);
    }
out:
    ct_buf_fini(&text);
    return rc;
}

static void drop(struct probe *probe, const char *what, int number)
{
    char key[KEY_MAX];
    bool there;
    struct ct_err unused = {0};
    if (ct_client_delete(probe->store, key_of(probe, key, what, number), &there, &unused) != 0) {
        return; /* the key stays, which harms nobody */
    }
}

/* Everybody counts, and the last of `count` lets all go on. */
static int meet(struct probe *probe, const char *what, int number, int count, int64_t timeout_ms,
                struct ct_err *err)
{
    char key[KEY_MAX];
    struct ct_buf text = CT_BUF_INIT;
    int64_t there = 0;
    int rc = ct_client_add(probe->store, key_of(probe, key, what, number), 1, &there, err);
    if (rc != 0) {
        return rc;
    }
    if (there == count) {
        ct_buf_addf(&text, "go");
        rc = put(probe, "go", number, &text, err);
        if (rc != 0) {
            goto out;
        }
    }
    rc = get(probe, "go", number, timeout_ms, &text, err);
out:
    ct_buf_fini(&text);
    return rc;
}

/* ---- the plan ------------------------------------------------------------------------------- */

static int64_t wall_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / CT_NS_PER_MS;
}

/* Node rank 0: waits for all rows. */
static int gather(struct probe *probe, struct ct_preflight_machine **out, struct ct_err *err)
{
    struct ct_preflight_machine *machines = ct_calloc((size_t)probe->nodes, sizeof(*machines));
    int64_t deadline_ns = ct_deadline_in(NULL, ROWS_MS);
    if (machines == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    for (int i = 0; i < probe->nodes; i++) {
        int64_t left_ms = ct_deadline_left_ms(NULL, deadline_ns);
        int rc = get_row(probe, "row", i, left_ms, &machines[i], err);
        if (rc == CT_ETIMEDOUT) {
            rc = ct_err_set(err, rc, "node rank %d has not taken part within %d s", i,
                            ROWS_MS / 1000);
        }
        if (rc != 0) {
            ct_free(machines);
            return rc;
        }
    }
    *out = machines;
    return 0;
}

/* Node rank 0: tells all who takes part, or why there is no preflight. */
static int tell_plan(struct probe *probe, const struct ct_preflight_machine *machines,
                     const char *broken, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    cJSON *plan = cJSON_CreateObject();
    cJSON *parts = plan != NULL ? cJSON_AddArrayToObject(plan, "parts") : NULL;
    char hex[2 * CT_PREFLIGHT_SECRET + 1] = "";
    for (int i = 0; i < CT_PREFLIGHT_SECRET; i++) {
        (void)snprintf(hex + 2 * (size_t)i, 3, "%02x", probe->secret[i]);
    }
    bool ok = parts != NULL && ct_json_add_text(plan, "secret", hex) &&
              ct_json_add_text(plan, "broken", broken) &&
              ct_json_add_number(plan, "clock_ms", (double)wall_ms());
    for (int i = 0; ok && machines != NULL && i < probe->nodes; i++) {
        ok = !machines[i].takes_part || cJSON_AddItemToArray(parts, cJSON_CreateNumber(i));
    }
    int rc = ok && ct_json_print(plan, &text) == 0 ? put(probe, "plan", 0, &text, err)
                                                   : ct_err_set(err, CT_ENOMEM, "out of memory");
    cJSON_Delete(plan);
    ct_buf_fini(&text);
    return rc;
}

static bool read_secret(const char *hex, unsigned char out[CT_PREFLIGHT_SECRET])
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(hex) != 2 * CT_PREFLIGHT_SECRET || strspn(hex, digits) != 2 * CT_PREFLIGHT_SECRET) {
        return false;
    }
    for (size_t i = 0; i < CT_PREFLIGHT_SECRET; i++) {
        out[i] = (unsigned char)((strchr(digits, hex[2 * i]) - digits) * 16 +
                                 (strchr(digits, hex[2 * i + 1]) - digits));
    }
    return true;
}

static int read_plan(struct probe *probe, const cJSON *plan, struct ct_err *err)
{
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(plan, "parts");
    const char *broken = ct_json_text(plan, "broken", "");
    int count = cJSON_IsArray(parts) ? cJSON_GetArraySize(parts) : 0;
    if (broken[0] != '\0') {
        return ct_err_set(err, CT_ETIMEDOUT, "%.700s", broken);
    }
    if (count < 1 || count > probe->nodes ||
        !read_secret(ct_json_text(plan, "secret", ""), probe->secret)) {
        return ct_err_set(err, CT_EFORMAT, "node rank 0 has sent no plan");
    }
    probe->parts = ct_calloc((size_t)count, sizeof(*probe->parts));
    if (probe->parts == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    probe->index = -1;
    for (const cJSON *part = parts->child; part != NULL; part = part->next) {
        double rank = cJSON_IsNumber(part) ? part->valuedouble : -1;
        if (rank < 0 || rank >= probe->nodes) {
            return ct_err_set(err, CT_EFORMAT, "node rank 0 has planned with node %g", rank);
        }
        probe->index = (int)rank == probe->node_rank ? probe->count : probe->index;
        probe->parts[probe->count++] = (int)rank;
    }
    double ahead_ms = (double)wall_ms() - ct_json_number(plan, "clock_ms", NAN);
    probe->here.clock_s = probe->node_rank == 0 ? 0 : ahead_ms / 1000;
    return 0;
}

static int hear_plan(struct probe *probe, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = get(probe, "plan", 0, ROWS_MS + STORE_MS, &text, err);
    if (rc == CT_ETIMEDOUT) {
        rc = ct_err_set(err, rc, "node rank 0 has sent no plan within %d s",
                        (ROWS_MS + STORE_MS) / 1000);
    }
    if (rc != 0) {
        goto out;
    }
    cJSON *plan = cJSON_Parse(ct_buf_cstr(&text));
    rc = read_plan(probe, plan, err);
    cJSON_Delete(plan);
out:
    ct_buf_fini(&text);
    return rc;
}

/* ---- the rounds ----------------------------------------------------------------------------- */

static int play_round(struct probe *probe, int round, struct ct_err *err)
{
    struct ct_preflight_machine *here = &probe->here, other;
    int partner = ct_preflight_partner(probe->count, round, probe->index);
    if (partner < 0) { /* it only waits until the others may begin */
        return meet(probe, "round", round, probe->count, ROUND_MS, err);
    }
    int rc = get_row(probe, "row", probe->parts[partner], STORE_MS, &other, err);
    if (rc != 0) {
        return rc;
    }
    /* All begin together, so that each has the network for its own pair. */
    rc = meet(probe, "round", round, probe->count, ROUND_MS, err);
    if (rc != 0) {
        return rc;
    }
    const struct ct_preflight_meeting meeting = {
        .listener = probe->listener,
        .secret = probe->secret,
        .round = round,
        .machine = probe->index,
        .partner = partner,
        .address = other.address,
        .port = other.port,
    };
    ct_preflight_measure(&meeting, &here->links[here->num_links++]);
    return 0;
}

static int put_links(struct probe *probe, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_preflight_links_write(&probe->here, &text) == 0
                 ? put(probe, "links", probe->node_rank, &text, err)
                 : ct_err_set(err, CT_ENOMEM, "out of memory");
    ct_buf_fini(&text);
    return rc;
}

static int play(struct probe *probe, struct ct_err *err)
{
    for (int round = 0; round < ct_preflight_rounds(probe->count); round++) {
        int rc = play_round(probe, round, err);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = put_links(probe, err);
    if (rc != 0) {
        return rc;
    }
    return put_row(probe, "found", err); /* the row has the clock now */
}

/* Node rank 0: reads what all have found. `machines` has room for all. */
static int gather_links(struct probe *probe, struct ct_preflight_machine *machines,
                        struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = 0;
    for (int i = 0; i < probe->count; i++) {
        rc = get_row(probe, "found", probe->parts[i], ROUND_MS, &machines[i], err);
        if (rc != 0) {
            goto out;
        }
        rc = get(probe, "links", probe->parts[i], STORE_MS, &text, err);
        if (rc != 0) {
            goto out;
        }
        rc = ct_preflight_links_read(ct_buf_cstr(&text), probe->count, &machines[i], err);
        if (rc != 0) {
            rc = ct_err_wrap(err, "node rank %d", probe->parts[i]);
            goto out;
        }
    }
out:
    ct_buf_fini(&text);
    return rc;
}

/* ---- the verdict ---------------------------------------------------------------------------- */

/* Adds what is wrong with a machine to the object: all of it in one text. */
static bool add_unfit(cJSON *object, const struct ct_preflight_verdict *verdict, int machine)
{
    struct ct_buf text = CT_BUF_INIT;
    const char *advice = "";
    for (int i = 0; i < verdict->num_findings; i++) {
        const struct ct_preflight_finding *finding = &verdict->findings[i];
        if (finding->machine == machine && finding->unfit) {
            ct_buf_addf(&text, "%s%s", text.len > 0 ? "; " : "", finding->what);
            advice = advice[0] != '\0' ? advice : finding->advice;
        }
    }
    const char *what = ct_buf_cstr(&text);
    bool ok = what != NULL && ct_buf_status(&text) == 0 &&
              ct_json_add_text(object, "unfit", what) && ct_json_add_text(object, "advice", advice);
    ct_buf_fini(&text);
    return ok;
}

static bool add_warnings(cJSON *object, const struct ct_preflight_machine *machines,
                         const struct ct_preflight_verdict *verdict)
{
    struct ct_buf text = CT_BUF_INIT;
    for (int i = 0; i < verdict->num_findings; i++) {
        const struct ct_preflight_finding *finding = &verdict->findings[i];
        if (!finding->unfit) {
            char name[CT_PREFLIGHT_NAME_MAX];
            ct_preflight_name(&machines[finding->machine], name);
            ct_buf_addf(&text, "%s%s: %s; %s", text.len > 0 ? "\n" : "", name, finding->what,
                        finding->advice);
        }
    }
    const char *lines = ct_buf_cstr(&text);
    bool ok =
        lines != NULL && ct_buf_status(&text) == 0 && ct_json_add_text(object, "warnings", lines);
    ct_buf_fini(&text);
    return ok;
}

/* Adds what the agent of node rank 0 prints and reports. */
static bool add_story(cJSON *object, const struct ct_preflight_machine *machines, int count,
                      const struct ct_preflight_verdict *verdict)
{
    struct ct_buf table = CT_BUF_INIT, pairs = CT_BUF_INIT;
    cJSON *report = NULL;
    bool ok = ct_preflight_table(machines, count, verdict, &table) == 0 &&
              ct_preflight_pairs_text(machines, count, verdict, &pairs) == 0 &&
              ct_preflight_report(machines, count, verdict, &report) == 0;
    const char *rows = ct_buf_cstr(&table), *summary = ct_buf_cstr(&pairs);
    ok = ok && rows != NULL && summary != NULL && ct_json_add_text(object, "table", rows) &&
         ct_json_add_text(object, "summary", summary) && add_warnings(object, machines, verdict);
    if (ok && cJSON_AddItemToObject(object, "report", report)) {
        report = NULL;
    } else {
        ok = false;
    }
    cJSON_Delete(report);
    ct_buf_fini(&table);
    ct_buf_fini(&pairs);
    return ok;
}

/* Gives what was found of each machine that is not fit. */
static cJSON *list_unfit(const struct ct_preflight_verdict *verdict)
{
    cJSON *list = cJSON_CreateArray();
    bool ok = list != NULL;
    int last = -1;
    for (int i = 0; ok && i < verdict->num_findings; i++) {
        int machine = verdict->findings[i].machine;
        if (!verdict->findings[i].unfit || machine == last) {
            continue;
        }
        last = machine;
        cJSON *object = ct_json_append_object(list);
        ok = object != NULL && ct_json_add_number(object, "machine", machine) &&
             add_unfit(object, verdict, machine);
    }
    if (!ok) {
        cJSON_Delete(list);
        list = NULL;
    }
    return list;
}

/* Adds to the result what the list says of this machine and of others. */
static bool take_verdict(struct probe *probe, const cJSON *list)
{
    bool others = false, ok = true;
    for (const cJSON *item = list->child; ok && item != NULL; item = item->next) {
        /* Compared as it is: a number that is too large for an int must not be made one. */
        if (probe->index < 0 || ct_json_number(item, "machine", -1) != probe->index) {
            others = true;
            continue;
        }
        ok = ct_json_add_text(probe->result, "unfit", ct_json_text(item, "unfit", "")) &&
             ct_json_add_text(probe->result, "advice", ct_json_text(item, "advice", ""));
    }
    return ok && ct_json_add_bool(probe->result, "others_unfit", others);
}

/* Writes one line, which counts until another one follows. */
static bool say(const cJSON *result)
{
    struct ct_buf text = CT_BUF_INIT;
    bool ok = ct_json_print(result, &text) == 0 &&
              ct_fd_write_all(STDOUT_FILENO, ct_buf_bytes(&text), text.len) == 0;
    ct_buf_fini(&text);
    return ok;
}

/* Node rank 0: writes the result, and then tells all what was found of each. */
static int tell_verdict(struct probe *probe, const struct ct_preflight_machine *machines,
                        const struct ct_preflight_verdict *verdict, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    cJSON *list = list_unfit(verdict);
    int rc = CT_ENOMEM;
    probe->said = list != NULL && add_story(probe->result, machines, probe->count, verdict) &&
                  take_verdict(probe, list) && ct_json_add_text(probe->result, "broken", "") &&
                  say(probe->result);
    if (probe->said && ct_json_print(list, &text) == 0) {
        rc = put(probe, "verdict", 0, &text, err);
    } else {
        (void)ct_err_set(err, rc, "out of memory");
    }
    cJSON_Delete(list);
    ct_buf_fini(&text);
    return rc;
}

static int judge(struct probe *probe, struct ct_preflight_machine *machines, struct ct_err *err)
{
    struct ct_preflight_verdict verdict;
    int rc = gather_links(probe, machines, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_preflight_mark_names(machines, probe->count);
    if (rc != 0) {
        return ct_err_set(err, rc, "out of memory");
    }
    rc = ct_preflight_judge(machines, probe->count, &probe->limits, &verdict);
    if (rc != 0) {
        return ct_err_set(err, rc, "out of memory");
    }
    rc = tell_verdict(probe, machines, &verdict, err);
    ct_preflight_verdict_fini(&verdict);
    return rc;
}

int64_t ct_preflight_verdict_ms(int machines)
{
    return (int64_t)ct_preflight_rounds(machines) * CT_PREFLIGHT_PAIR_MS + ROUND_MS + STORE_MS;
}

static int hear_verdict(struct probe *probe, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = get(probe, "verdict", 0, ct_preflight_verdict_ms(probe->count), &text, err);
    if (rc != 0) {
        goto out;
    }
    cJSON *list = cJSON_Parse(ct_buf_cstr(&text));
    if (!cJSON_IsArray(list)) {
        rc = ct_err_set(err, CT_EFORMAT, "node rank 0 has sent no verdict");
    } else if (!take_verdict(probe, list)) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    cJSON_Delete(list);
out:
    ct_buf_fini(&text);
    return rc;
}

/* The workers begin with a store as empty as without a preflight. Who leaves last has the keys that
 * all have read. */
static void clear_keys(struct probe *probe)
{
    static const char *const own[] = {"row", "found", "links"};
    static const char *const common[] = {"plan", "verdict", "left"};
    char key[KEY_MAX];
    int64_t left = 0;
    struct ct_err unused = {0};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        drop(probe, own[i], probe->node_rank);
    }
    if (ct_client_add(probe->store, key_of(probe, key, "left", 0), 1, &left, &unused) != 0 ||
        left < probe->nodes) {
        return;
    }
    for (int round = 0; round < ct_preflight_rounds(probe->count); round++) {
        drop(probe, "round", round);
        drop(probe, "go", round);
    }
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
        drop(probe, common[i], 0);
    }
}

/* ---- all ------------------------------------------------------------------------------------ */

static int with_others(struct probe *probe, struct ct_err *err)
{
    struct ct_preflight_machine *machines = NULL;
    struct ct_err why = {0};
    int rc = ct_preflight_listen(&probe->listener, &probe->here.port, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_client_open(probe->master_addr, probe->master_port, STORE_MS, &probe->store, err);
    if (rc != 0) {
        return rc;
    }
    rc = put_row(probe, "row", err);
    if (rc != 0) {
        return rc;
    }
    if (probe->node_rank == 0) {
        /* If somebody is missing, all are told why it ends. */
        int gathered = gather(probe, &machines, &why);
        rc = tell_plan(probe, machines, gathered == 0 ? "" : why.text, err);
        if (rc != 0) {
            goto out;
        }
    }
    rc = hear_plan(probe, err);
    if (rc != 0) {
        goto out;
    }
    if (probe->index >= 0) {
        rc = play(probe, err);
        if (rc != 0) {
            goto out;
        }
    }
    rc = machines != NULL ? judge(probe, machines, err) : hear_verdict(probe, err);
    if (rc != 0) {
        goto out;
    }
    clear_keys(probe);
out:
    ct_free(machines);
    return rc;
}

static int alone(struct probe *probe, struct ct_err *err)
{
    struct ct_preflight_verdict verdict;
    int rc = ct_preflight_judge(&probe->here, 1, &probe->limits, &verdict);
    if (rc != 0) {
        return ct_err_set(err, rc, "out of memory");
    }
    bool ok = verdict.unfit == 0 || add_unfit(probe->result, &verdict, 0);
    ok = ok && add_story(probe->result, &probe->here, 1, &verdict);
    ct_preflight_verdict_fini(&verdict);
    return ok ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

static int run(char *const *argv, struct probe *probe, struct ct_err *err)
{
    if (probe->result == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = read_words(argv, probe, err);
    if (rc != 0) {
        return rc;
    }
    if (getrandom(probe->secret, sizeof(probe->secret), 0) != sizeof(probe->secret)) {
        return ct_err_sys(err, CT_EIO, errno, "cannot get random bytes");
    }
    if (probe->here.takes_part) {
        rc = look_here(probe, err);
        if (rc != 0) {
            return rc;
        }
    }
    return probe->nodes > 0 ? with_others(probe, err) : alone(probe, err);
}

int ct_preflight_probe(char *const *argv)
{
    struct probe probe = {.limits = CT_PREFLIGHT_LIMITS_INIT, .listener = -1, .index = -1};
    struct ct_err err = {0};
    ct_json_use_our_memory();
    (void)signal(SIGPIPE, SIG_IGN);
    ct_preflight_machine_init(&probe.here);
    probe.result = cJSON_CreateObject();
    int rc = run(argv, &probe, &err);
    bool ok = rc == 0 && probe.said;
    if (!ok) {
        cJSON_Delete(probe.said ? probe.result : NULL); /* what it says is not true any more */
        probe.result = probe.said ? cJSON_CreateObject() : probe.result;
        ok = probe.result != NULL &&
             ct_json_add_text(probe.result, "broken", rc == 0 ? "" : err.text) && say(probe.result);
    }
    cJSON_Delete(probe.result);
    ct_client_free(probe.store);
    ct_free(probe.parts);
    if (probe.listener >= 0) {
        (void)close(probe.listener);
    }
    return ok ? CT_EXIT_OK : CT_EXIT_SETUP;
}
