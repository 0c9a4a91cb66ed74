/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the topics, and the layout of --help.
 */
#include "launcher/cli/help.h"

#include "common/suggest.h"
#include "launcher/cli/option_table.h"

#include <stdio.h>
#include <string.h>

/* The column of the brief descriptions: behind the longest usual option. */
#define BRIEF_COLUMN 38

static const struct {
    const char *name, *title;
} topics[] = {
    [CT_HELP_JOB] = {"job", "the workers, the program, reports"},
    [CT_HELP_RESTART] = {"restart", "restarts, stopping, signals"},
    [CT_HELP_HANG] = {"hang", "workers that hang or are slow"},
    [CT_HELP_OUTPUT] = {"output", "what workers write: files, prefixes, filters"},
    [CT_HELP_NODES] = {"nodes", "several machines, and where their store is"},
    [CT_HELP_HOSTS] = {"hosts", "one command that starts all machines"},
    [CT_HELP_BINDING] = {"binding", "which CPUs a worker gets"},
    [CT_HELP_GPU] = {"gpu", "which GPU a worker gets"},
    [CT_HELP_TORCHRUN] = {"torchrun", "options of torchrun that have no effect"},
    [CT_HELP_ARGUMENTS] = {"arguments", "${rank} and others in the program's arguments"},
};

#define TOPICS (sizeof(topics) / sizeof(topics[0]))

static const char arguments[] =
    "  ${rank}, ${world_size}              in the job\n"
    "  ${local_rank}, ${local_world_size}  on this machine\n"
    "  ${node_rank}, ${nnodes}             of the machines\n"
    "  ${master_addr}, ${master_port}      where the workers' store is\n"
    "  ${port:NAME}                        a port for the program, the same on every\n"
    "                                      machine; CTRUN_PORT_NAME has it, too\n"
    "  $local_rank                         the same as in braces\n"
    "  $$                                  one dollar sign\n\n"
    "Other names stay as they are. In a shell, put such an argument in single quotes.\n";

/* "${rank}" and "$local_rank" are values in arguments. */
static size_t find_topic(const char *word)
{
    size_t i = 0;
    if (word[0] == '$') {
        return CT_HELP_ARGUMENTS;
    }
    while (i < TOPICS && strcmp(topics[i].name, word) != 0) {
        i++;
    }
    return i;
}

/* Words that people look for, and what has them. */
static const struct {
    const char *word, *name;
} also[] = {
    {"failover", "rdzv-conf"}, {"elastic", "nodes"},   {"spare", "spares"},
    {"ssh", "hosts"},          {"retry", "restart"},   {"retries", "restart"},
    {"signal", "restart"},     {"stop", "restart"},    {"log", "output"},
    {"logs", "output"},        {"files", "output"},    {"page", "print-url"},
    {"stacks", "hang-stacks"}, {"slow", "hang"},       {"numa", "binding"},
    {"cpu", "binding"},        {"cpus", "binding"},    {"cuda", "gpu"},
    {"port", "arguments"},     {"ports", "arguments"}, {"rank", "arguments"},
    {"store", "nodes"},        {"workers", "job"},     {"program", "job"},
};

/* Finds an option by its long name, with or without the dashes, or as a letter with its dash; NULL
 * when there is none. */
static const struct ct_option_spec *find_option(const char *word)
{
    if (word[0] == '-' && word[1] != '-') {
        for (size_t i = 0; word[1] != '\0' && word[2] == '\0' && i < ct_option_count; i++) {
            if (ct_option_table[i].letter == word[1]) {
                return &ct_option_table[i];
            }
        }
        return NULL;
    }
    word += word[0] == '-' ? 2 : 0;
    for (size_t i = 0; i < ct_option_count; i++) {
        const char *name = ct_option_table[i].name, *p = word;
        while (*name != '\0' && (*p == *name || (*p == '_' && *name == '-'))) {
            name++;
            p++;
        }
        if (*name == '\0' && *p == '\0' && ct_option_is_shown(&ct_option_table[i])) {
            return &ct_option_table[i];
        }
    }
    return NULL;
}

bool ct_help_knows(const char *word)
{
    return strcmp(word, "all") == 0 || find_topic(word) < TOPICS || find_option(word) != NULL;
}

/* Returns the first topic, else the first option, that begins with the word. */
static const char *begins_with(const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; len > 0 && i < TOPICS; i++) {
        if (strncmp(topics[i].name, word, len) == 0) {
            return topics[i].name;
        }
    }
    for (size_t i = 0; len > 0 && i < ct_option_count; i++) {
        const struct ct_option_spec *spec = &ct_option_table[i];
        if (ct_option_is_shown(spec) && strncmp(spec->name, word, len) == 0) {
            return spec->name;
        }
    }
    return NULL;
}

const char *ct_help_nearest(const char *word)
{
    for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++) {
        if (strcmp(also[i].word, word) == 0) {
            return also[i].name;
        }
    }
    const char *begun = begins_with(word);
    if (begun != NULL) {
        return begun;
    }
    struct ct_suggestion near = ct_suggestion_for(word, strlen(word));
    for (size_t i = 0; i < TOPICS; i++) {
        ct_suggestion_offer(&near, topics[i].name);
    }
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_is_shown(&ct_option_table[i])) {
            ct_suggestion_offer(&near, ct_option_table[i].name);
        }
    }
    return near.name;
}

void ct_help_topics(struct ct_buf *out)
{
    for (size_t i = 0; i < TOPICS; i++) {
        ct_buf_addf(out, " %s", topics[i].name);
    }
}

/* "  -n, --nproc-per-node N|auto" */
static void print_head(const struct ct_option_spec *spec, struct ct_buf *out)
{
    char letter[] = "-x, ";
    letter[1] = spec->letter;
    ct_buf_addf(out, "  %s--%s%s%s", spec->letter != 0 ? letter : "", spec->name,
                spec->metavar != NULL && !spec->after_equals ? " " : "",
                spec->metavar != NULL ? spec->metavar : "");
}

static void print_option(const struct ct_option_spec *spec, struct ct_buf *out)
{
    print_head(spec, out);
    ct_buf_addf(out, "\n");
    for (const char *line = spec->help; *line != '\0';) {
        int len = (int)strcspn(line, "\n");
        ct_buf_addf(out, "        %.*s\n", len, line);
        line += line[len] == '\n' ? len + 1 : len;
    }
}

static void print_topic(size_t topic, struct ct_buf *out)
{
    ct_buf_addf(out, "%s: %s\n\n", topics[topic].name, topics[topic].title);
    if (topic == CT_HELP_ARGUMENTS) {
        ct_buf_addf(out, "%s", arguments);
    }
    for (size_t i = 0; i < ct_option_count; i++) {
        const struct ct_option_spec *spec = &ct_option_table[i];
        if (ct_option_is_shown(spec) && spec->topic == topic) {
            print_option(spec, out);
        }
    }
}

static void print_all(struct ct_buf *out)
{
    for (size_t i = 0; i < TOPICS; i++) {
        ct_buf_addf(out, "%s", i > 0 ? "\n" : "");
        print_topic(i, out);
    }
}

static void print_brief(const struct ct_option_spec *spec, struct ct_buf *out)
{
    size_t begin = out->len;
    print_head(spec, out);
    int pad = BRIEF_COLUMN - (int)(out->len - begin);
    ct_buf_addf(out, "%*s  %s\n", pad > 0 ? pad : 0, "", spec->brief);
}

static void print_usual(struct ct_buf *out)
{
    ct_buf_addf(out,
                "usage: ctrun [OPTION ...] PROGRAM [ARGUMENT ...]\n\n"
                "Starts PROGRAM as the workers of a distributed job, watches them, restarts "
                "them\nwhen one fails, and says what went wrong. A PROGRAM ending in .py runs "
                "under\npython3 -u; any other is looked up in PATH, then among the programs of "
                "ctrun.\n\n");
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_table[i].brief != NULL) {
            print_brief(&ct_option_table[i], out);
        }
    }
    ct_buf_addf(out, "\nMore: ctrun --help TOPIC, where TOPIC is the name of an option, all, or\n");
    for (size_t i = 0; i < TOPICS; i++) {
        ct_buf_addf(out, "  %-10s%s\n", topics[i].name, topics[i].title);
    }
    ct_buf_addf(out, "\nEvery option may be spelled with underscores, be abbreviated, or come from "
                     "the\nenvironment as PET_NAME (PET_NPROC_PER_NODE=2). See ctrun(1).\n");
}

int ct_help_print(const char *word, struct ct_buf *out)
{
    size_t topic = word != NULL ? find_topic(word) : TOPICS;
    if (word == NULL) {
        print_usual(out);
    } else if (strcmp(word, "all") == 0) {
        print_all(out);
    } else if (topic < TOPICS) {
        print_topic(topic, out);
    } else {
        print_option(find_option(word), out);
    }
    return ct_buf_status(out);
}
