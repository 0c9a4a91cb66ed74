/* SPDX-License-Identifier: Apache-2.0
 *
 * The names and texts of the topics, the search for a word, and the layout of --help.
 */
#include "launcher/cli/help.h"

#include "common/suggest.h"
#include "launcher/cli/option_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The column of the brief descriptions: behind the longest usual option. */
#define BRIEF_COLUMN 38

/* The shortest word of an option's name that is suggested. */
#define WORD_MIN 4

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

/* The numbers are those of common/exit_code.h. */
static const char codes[] =
    "  0          all workers exited with 0\n"
    "  1          the job could not be set up: a port in use, a folder that cannot be\n"
    "             written, no GPU, too little memory\n"
    "  2          the command line or a PET_ variable is wrong or not supported\n"
    "  118        a machine failed its check (--health-check, --preflight)\n"
    "  119        another start of the job would fail, too: do not queue it again\n"
    "             (--no-restart-on, --max-no-progress)\n"
    "  120        not enough machines came in time, at the start or after a loss, or\n"
    "             the store could not be reached\n"
    "  121        a machine was lost without a restart left, or the store was lost\n"
    "  122        a worker hung (--hang-timeout)\n"
    "  123        a signal other than SIGINT asked the job to end, and all workers\n"
    "             ended with 0\n"
    "  126        the program cannot be executed\n"
    "  127        the program or the Python interpreter was not found\n"
    "  128 + N    signal N killed the worker that failed first, or ended the job\n"
    "  any other  the exit code of the worker that failed first\n\n"
    "A worker may exit with one of these codes, too; the report tells which it was.\n"
    "Another start can help after 120, 121 and 123, but not after 119. The script\n"
    "share/ctrun/ctrun-requeue.sbatch makes Slurm requeue such a job.\n";

static const char programs[] =
    "  ctrun-stat  shows the status of a running job; without an address, that of\n"
    "              yours on this machine, or a list of them: ctrun-stat --help\n"
    "  ctrdzvd     a store that outlives its jobs: ctrdzvd --help\n"
    "  train       the trainer in C, where it is installed: ctrun train --help\n\n"
    "Each has a manual page, such as ctrun-stat(1).\n";

/* `title` is one line of the usual help; `text` is NULL for a topic of options. */
static const struct {
    const char *name, *title, *text;
} topics[] = {
    [CT_HELP_JOB] = {"job", "the workers, the program, reports", NULL},
    [CT_HELP_RESTART] = {"restart", "restarts, stopping, signals", NULL},
    [CT_HELP_HANG] = {"hang", "workers that hang or are slow", NULL},
    [CT_HELP_OUTPUT] = {"output", "what workers write: files, prefixes, filters", NULL},
    [CT_HELP_NODES] = {"nodes", "several machines, and where their store is", NULL},
    [CT_HELP_HOSTS] = {"hosts", "one command that starts all machines", NULL},
    [CT_HELP_BINDING] = {"binding", "which CPUs a worker gets", NULL},
    [CT_HELP_GPU] = {"gpu", "which GPU a worker gets", NULL},
    [CT_HELP_TORCHRUN] = {"torchrun", "options of torchrun that have no effect", NULL},
    [CT_HELP_ARGUMENTS] = {"arguments", "${rank} and others in the program's arguments", arguments},
    [CT_HELP_CODES] = {"codes", "what the exit codes of ctrun mean", codes},
    [CT_HELP_PROGRAMS] = {"programs", "ctrun-stat and the other programs", programs},
};

#define TOPICS (sizeof(topics) / sizeof(topics[0]))

/* Other names of a topic. */
static const struct {
    const char *word;
    enum ct_help_topic topic;
} aliases[] = {
    {"exit", CT_HELP_CODES},          {"code", CT_HELP_CODES},
    {"exit-code", CT_HELP_CODES},     {"exit-codes", CT_HELP_CODES},
    {"exit code", CT_HELP_CODES},     {"exit codes", CT_HELP_CODES},
    {"exit-status", CT_HELP_CODES},   {"exit status", CT_HELP_CODES},
    {"ctrun-stat", CT_HELP_PROGRAMS}, {"ctrdzvd", CT_HELP_PROGRAMS},
    {"train", CT_HELP_PROGRAMS},
};

/* "${rank}" and "$local_rank" are values in arguments. */
static size_t find_topic(const char *word)
{
    if (word[0] == '$') {
        return CT_HELP_ARGUMENTS;
    }
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
        if (strcmp(aliases[i].word, word) == 0) {
            return aliases[i].topic;
        }
    }
    size_t i = 0;
    while (i < TOPICS && strcmp(topics[i].name, word) != 0) {
        i++;
    }
    return i;
}

/* Words that people look for, and the topic or option that is about them, in its text or not. */
static const struct {
    const char *word, *name;
} also[] = {
    {"failover", "rdzv-conf"}, {"elastic", "nodes"},     {"spare", "spares"},
    {"ssh", "hosts"},          {"retry", "restart"},     {"retries", "restart"},
    {"signal", "restart"},     {"stop", "restart"},      {"log", "output"},
    {"logs", "output"},        {"files", "output"},      {"page", "print-url"},
    {"stacks", "hang-stacks"}, {"slow", "hang"},         {"numa", "binding"},
    {"cpu", "binding"},        {"cpus", "binding"},      {"cuda", "gpu"},
    {"port", "arguments"},     {"ports", "arguments"},   {"rank", "arguments"},
    {"store", "nodes"},        {"workers", "job"},       {"program", "job"},
    {"status", "codes"},       {"background", "detach"}, {"daemon", "detach"},
    {"nohup", "detach"},       {"tmux", "detach"},
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
    return ct_option_by_name(word, strlen(word));
}

/* ---- words --------------------------------------------------------------------------------- */

static bool same_letter(char a, char b)
{
    a = a == '_' ? '-' : a == '\n' ? ' ' : a;
    b = b == '_' ? '-' : b;
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Does a word of the text begin with `word`? So "port" is not found in "report". */
static bool has_word(const char *text, const char *word)
{
    for (const char *p = text; text != NULL && *p != '\0'; p++) {
        size_t same = 0;
        if (p > text && isalnum((unsigned char)p[-1])) {
            continue;
        }
        while (word[same] != '\0' && p[same] != '\0' && same_letter(p[same], word[same])) {
            same++;
        }
        if (word[same] == '\0') {
            return true;
        }
    }
    return false;
}

/* One letter begins too many words, and a dash an option. */
static bool is_word(const char *word)
{
    return word[0] != '-' && word[0] != '\0' && word[1] != '\0';
}

static bool option_has(const struct ct_option_spec *spec, const char *word)
{
    return ct_option_is_shown(spec) &&
           (has_word(spec->name, word) || has_word(spec->metavar, word) ||
            has_word(spec->help, word));
}

/* Returns what also[] says, or NULL. */
static const char *also_about(const char *word)
{
    for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++) {
        if (strcmp(also[i].word, word) == 0) {
            return also[i].name;
        }
    }
    return NULL;
}

static bool topic_has(size_t topic, const char *word)
{
    const char *name = also_about(word);
    return (name != NULL && find_topic(name) == topic) || has_word(topics[topic].name, word) ||
           has_word(topics[topic].title, word) || has_word(topics[topic].text, word);
}

static bool is_found(const char *word)
{
    bool found = is_word(word) && also_about(word) != NULL;
    for (size_t i = 0; i < TOPICS && !found; i++) {
        found = is_word(word) && topic_has(i, word);
    }
    for (size_t i = 0; i < ct_option_count && !found; i++) {
        found = is_word(word) && option_has(&ct_option_table[i], word);
    }
    return found;
}

bool ct_help_knows(const char *word)
{
    return strcmp(word, "all") == 0 || find_topic(word) < TOPICS || find_option(word) != NULL ||
           is_found(word);
}

/* Offers each word of an option's name, of which --help shows all options that have it. Short ones
 * are near to too much. A word that is taken is kept in `kept`. */
static void offer_words(struct ct_suggestion *near, const char *name, char kept[CT_HELP_WORD_MAX])
{
    for (const char *at = name; *at != '\0'; at += *at == '-') {
        char word[CT_HELP_WORD_MAX];
        size_t len = strcspn(at, "-");
        (void)snprintf(word, sizeof(word), "%.*s", (int)len, at);
        if (len >= WORD_MIN) {
            ct_suggestion_offer(near, word);
        }
        if (near->name == word) {
            memcpy(kept, word, sizeof(word));
            near->name = kept;
        }
        at += len;
    }
}

const char *ct_help_nearest(const char *word, char kept[CT_HELP_WORD_MAX])
{
    word += strspn(word, "-");
    struct ct_suggestion near = ct_suggestion_for(word, strlen(word));
    for (size_t i = 0; i < TOPICS; i++) {
        ct_suggestion_offer(&near, topics[i].name);
    }
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_is_shown(&ct_option_table[i])) {
            ct_suggestion_offer(&near, ct_option_table[i].name);
        }
    }
    for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++) {
        ct_suggestion_offer(&near, also[i].word);
    }
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_is_shown(&ct_option_table[i])) {
            offer_words(&near, ct_option_table[i].name, kept);
        }
    }
    return near.name;
}

/* ---- layout -------------------------------------------------------------------------------- */

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
    if (topics[topic].text != NULL) {
        ct_buf_addf(out, "%s", topics[topic].text);
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
    ct_buf_addf(out, "\nMore: ctrun --help WORD, where WORD is any word, all, or a topic:\n");
    for (size_t i = 0; i < TOPICS; i++) {
        ct_buf_addf(out, "  %-10s%s\n", topics[i].name, topics[i].title);
    }
    ct_buf_addf(out, "\nEvery option may be spelled with underscores, be abbreviated, or come from "
                     "the\nenvironment as PET_NAME (PET_NPROC_PER_NODE=2). See ctrun(1).\n");
}

/* Longer than every entry of a text. */
#define ENTRY_MAX 512

/* Returns the length of the entry at the beginning of the text: a line with the lines below it that
 * are indented more, or lines without an indent. */
static size_t entry_len(const char *text)
{
    size_t indent = strspn(text, " ");
    size_t len = strcspn(text, "\n");
    while (text[len] == '\n' && text[len + 1] != '\n' && text[len + 1] != '\0') {
        size_t next = strspn(text + len + 1, " ");
        if (next <= indent && indent + next > 0) {
            break;
        }
        len += 1 + strcspn(text + len + 1, "\n");
    }
    return len;
}

/* Prints the entries of the topic's text that have the word, below the title of the topic. Returns
 * whether there are any. `first`: nothing is printed above. */
static bool print_entries(size_t topic, const char *word, bool first, struct ct_buf *out)
{
    const char *text = topics[topic].text != NULL ? topics[topic].text : "";
    bool any = false;
    while (*text != '\0') {
        char entry[ENTRY_MAX];
        size_t len = entry_len(text);
        (void)snprintf(entry, sizeof(entry), "%.*s", (int)len, text);
        if (has_word(entry, word)) {
            if (!any) {
                ct_buf_addf(out, "%s%s: %s\n\n", first ? "" : "\n", topics[topic].name,
                            topics[topic].title);
            }
            ct_buf_addf(out, "%s\n", entry);
            any = true;
        }
        text += len;
        text += strspn(text, "\n");
    }
    return any;
}

/* Prints what has the word: options, else the entries of texts, else whole topics. The other topics
 * that have it, or are about it, are named below. */
static void print_found(const char *word, struct ct_buf *out)
{
    const char *about = also_about(word);
    const struct ct_option_spec *other = about != NULL ? find_option(about) : NULL;
    bool shown[TOPICS] = {false};
    bool any = false;
    for (size_t i = 0; i < ct_option_count; i++) {
        const struct ct_option_spec *spec = &ct_option_table[i];
        if (spec == other || option_has(spec, word)) {
            print_option(spec, out);
            any = true;
        }
    }
    bool options = any;
    for (size_t i = 0; i < TOPICS && !options; i++) {
        shown[i] = print_entries(i, word, !any, out);
        any = any || shown[i];
    }
    bool whole = !any, named = false;
    for (size_t i = 0; i < TOPICS; i++) {
        if (shown[i] || !topic_has(i, word)) {
            continue;
        }
        if (whole) {
            ct_buf_addf(out, "%s", any ? "\n" : "");
            print_topic(i, out);
            any = true;
        } else {
            ct_buf_addf(out, "%s ctrun --help %s", named ? "," : "\nSee also:", topics[i].name);
            named = true;
        }
    }
    ct_buf_addf(out, "%s", named ? "\n" : "");
}

int ct_help_about(const struct ct_options *options, struct ct_buf *out)
{
    return options->help      ? ct_help_print(options->help_topic, out)
           : options->version ? ct_buf_printf(out, "ctrun %s\n", CT_VERSION)
                              : ct_completion_print(options->completion, out);
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
    } else if (find_option(word) != NULL) {
        print_option(find_option(word), out);
    } else {
        print_found(word, out);
    }
    return ct_buf_status(out);
}
