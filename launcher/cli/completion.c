/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the fixed text of the scripts, and between it names and values from the option table.
 */
#include "launcher/cli/completion.h"

#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Prints " auto cpu gpu", the words that may be the value, of "N|auto|cpu|gpu". */
static void print_choices(const struct ct_option_spec *spec, struct ct_buf *out)
{
    if (spec->id == CT_OPT_HELP) {
        ct_help_topics(out);
        return;
    }
    if (strchr(spec->metavar, '|') == NULL) {
        return;
    }
    for (const char *p = spec->metavar; *p != '\0';) {
        int len = (int)strcspn(p, "|");
        if (islower((unsigned char)*p)) {
            ct_buf_addf(out, " %.*s", len, p);
        }
        p += p[len] == '|' ? len + 1 : len;
    }
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void print_name(const struct ct_option_spec *spec, const char *between, struct ct_buf *out)
{
    if (spec->letter != 0) {
        ct_buf_addf(out, "-%c%s", spec->letter, between);
    }
    ct_buf_addf(out, "--%s", spec->name);
}

static void print_bash_case(const struct ct_option_spec *spec, struct ct_buf *out)
{
    ct_buf_addf(out, "        ");
    if (spec->id == CT_OPT_NPROC_PER_NODE) {
        ct_buf_addf(out, "-np | ");
    }
    print_name(spec, " | ", out);
    ct_buf_addf(out, ") values=\"");
    print_choices(spec, out);
    ct_buf_addf(out, "\" ;;\n");
}

/* The script walks over the words in front of the one to complete. After an option it offers the
 * option's values. After the program's name it offers files, and what `train --help` lists if that
 * is the program. Bash makes three words of "--option=value". */
static void print_bash(struct ct_buf *out)
{
    ct_buf_addf(out, "# Completion of ctrun for bash.\n"
                     "_ctrun()\n"
                     "{\n"
                     "    local cur=${COMP_WORDS[COMP_CWORD]} word values i=1\n"
                     "    [[ $cur == '=' ]] && cur=\n"
                     "    COMPREPLY=()\n"
                     "    while ((i < COMP_CWORD)); do\n"
                     "        word=${COMP_WORDS[i++]//_/-}\n"
                     "        case $word in\n");
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_is_shown(&ct_option_table[i]) && ct_option_table[i].metavar != NULL) {
            print_bash_case(&ct_option_table[i], out);
        }
    }
    ct_buf_addf(out, "        -?*) continue ;;\n"
                     "        *)\n"
                     "            if [[ $word == train && $cur == -* ]]; then\n"
                     "                values=$(\"$1\" train --help </dev/null "
                     "2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u)\n"
                     "                COMPREPLY=($(compgen -W \"$values\" -- "
                     "\"${cur//_/-}\"))\n"
                     "            else\n"
                     "                COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                     "            fi\n"
                     "            return\n"
                     "            ;;\n"
                     "        esac\n"
                     "        ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i]} == '=' ]]"
                     " && ((i++))\n"
                     "        if ((i >= COMP_CWORD)); then\n"
                     "            if [[ $values ]]; then\n"
                     "                COMPREPLY=($(compgen -W \"$values\" -- "
                     "\"$cur\"))\n"
                     "            else\n"
                     "                COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                     "            fi\n"
                     "            return\n"
                     "        fi\n"
                     "        ((i++))\n"
                     "    done\n"
                     "    if [[ $cur == -* ]]; then\n"
                     "        COMPREPLY=($(compgen -W \"");
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_is_shown(&ct_option_table[i])) {
            print_name(&ct_option_table[i], " ", out);
            ct_buf_addf(out, " ");
        }
    }
    ct_buf_addf(out, "\" -- \"${cur//_/-}\"))\n"
                     "    else\n"
                     "        COMPREPLY=($(compgen -c -f -- \"$cur\"))\n"
                     "    fi\n"
                     "}\n"
                     "complete -o filenames -F _ctrun ctrun\n");
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* Text inside single quotes of an _arguments specification. */
static void print_quoted(const char *text, size_t len, struct ct_buf *out)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i] == '\n' ? ' ' : text[i];
        if (c == '\'') {
            ct_buf_addf(out, "'\\''");
        } else {
            ct_buf_addf(out, "%s%c", strchr("[]:\\", c) != NULL ? "\\" : "", c);
        }
    }
}

static void print_zsh_option(const struct ct_option_spec *spec, struct ct_buf *out)
{
    const char *equals = spec->metavar != NULL ? "=" : "";
    if (spec->letter != 0) {
        ct_buf_addf(out, "    '(-%c --%s)'{-%c,--%s%s}'[", spec->letter, spec->name, spec->letter,
                    spec->name, equals);
    } else {
        ct_buf_addf(out, "    '--%s%s[", spec->name, equals);
    }
    print_quoted(spec->help, strcspn(spec->help, "\n"), out);
    ct_buf_addf(out, "]");
    if (spec->metavar != NULL) {
        struct ct_buf choices = CT_BUF_INIT;
        print_choices(spec, &choices);
        ct_buf_addf(out, ":");
        print_quoted(spec->metavar, strlen(spec->metavar), out);
        if (choices.len > 0) {
            ct_buf_addf(out, ":(%.*s)", (int)choices.len - 1,
                        (const char *)ct_buf_bytes(&choices) + 1);
        } else {
            ct_buf_addf(out, ":_files");
        }
        out->failed = out->failed || choices.failed;
        ct_buf_fini(&choices);
    }
    ct_buf_addf(out, "' \\\n");
}

static void print_zsh(struct ct_buf *out)
{
    ct_buf_addf(out, "#compdef ctrun\n"
                     "_ctrun_program()\n"
                     "{\n"
                     "    _alternative 'files:file:_files'"
                     " 'commands:command:_command_names -e'\n"
                     "}\n"
                     "_ctrun()\n"
                     "{\n"
                     "    local i\n"
                     "    for ((i = 2; i <= $#words; i++)); do\n"
                     "        [[ $words[i] == --?* ]] &&"
                     " words[i]=${${words[i]%%%%=*}//_/-}${words[i]#${words[i]%%%%=*}}\n"
                     "        [[ $words[i] == -np ]] && words[i]=-n\n"
                     "    done\n"
                     "    [[ $PREFIX == --* && $PREFIX != *=* ]] &&"
                     " PREFIX=${PREFIX//_/-}\n"
                     "    _arguments -s -S \\\n");
    for (size_t i = 0; i < ct_option_count; i++) {
        if (ct_option_is_shown(&ct_option_table[i])) {
            print_zsh_option(&ct_option_table[i], out);
        }
    }
    ct_buf_addf(out, "    '1:program:_ctrun_program' \\\n"
                     "    '*::argument:_files'\n"
                     "}\n"
                     "if [ \"$funcstack[1]\" = _ctrun ]; then\n"
                     "    _ctrun \"$@\"\n"
                     "else\n"
                     "    compdef _ctrun ctrun\n"
                     "fi\n");
}

int ct_completion_print(enum ct_shell shell, struct ct_buf *out)
{
    if (shell == CT_SHELL_ZSH) {
        print_zsh(out);
    } else {
        print_bash(out);
    }
    return ct_buf_status(out);
}
