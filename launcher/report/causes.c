/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of texts that programs write when they fail. The first row that fits a line counts, so
 * particular texts come before general ones: the text that names a port comes before the
 * "RuntimeError" around it. A refused connection comes late, because it is often the consequence of
 * another failure.
 */
#include "launcher/report/causes.h"

#include "launcher/cli/option_table.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Characters of a name that is quoted from a worker's line. */
#define NAME_MAX_SHOWN 120

struct cause {
    /* One line has all that are not NULL, in this order; upper and lower case are equal. */
    const char *words[2];
    /* "%s" stands for the name behind the words (name_length()). */
    const char *advice;
    /* Takes its place where the command line names the interpreter, as in ctrun python x.py, so
     * that PYTHON_EXEC does nothing. NULL = it is the same. */
    const char *other_python;
    /* Arguments that the program does not know follow the words. */
    bool is_argument;
};

/* The advice of several rows. */
static const char gpu_memory[] =
    "the memory of the GPU was used up: take a smaller batch or fewer workers for each GPU; "
    "nvidia-smi shows who else uses it";
static const char shared_memory[] =
    "shared memory (/dev/shm) is full: give it more room (docker run --shm-size=8g, in Kubernetes "
    "an emptyDir of medium Memory), or use fewer data loader processes";
static const char memory[] =
    "the memory of this machine, or what the worker may have of it (ulimit -v), was used up: "
    "take a smaller batch, fewer workers or fewer data loader processes";
static const char nccl_interface[] =
    "NCCL finds no network interface: correct or unset NCCL_SOCKET_IFNAME; \"ip -brief address\" "
    "shows what there is";
static const char gloo_interface[] =
    "gloo finds no network interface %s: correct or unset GLOO_SOCKET_IFNAME; \"ip -brief "
    "address\" shows what there is";
static const char gloo_loopback[] =
    "gloo told other machines an address that only this one knows: set GLOO_SOCKET_IFNAME to the "
    "interface between them, or take this machine's name from the line of 127.0.1.1 in /etc/hosts";
static const char address_in_use[] =
    "another program listens on that port: choose another one (--master-port for the job's), or "
    "end what \"ss -ltnp\" shows there";
static const char peer_gone[] =
    "another rank went away while this one talked to it: look at that one's last lines first";
static const char no_gpu[] = "no GPU can be seen: check nvidia-smi and CUDA_VISIBLE_DEVICES";
static const char thread_limit[] =
    "the limit of processes and threads is too low: raise it with ulimit -u, or set "
    "OMP_NUM_THREADS";
static const char unknown_host[] =
    "a host name is not known on this machine: check MASTER_ADDR, or pass an address to "
    "--master-addr";
static const char nccl_failed[] = "NCCL failed: NCCL_DEBUG=WARN makes it say where and why";

/* In place of these, for an option of ctrun. */
static const char misplaced[] =
    "%s is an option of ctrun, but stands behind the program, which was given it: write it before "
    "the program";
static const char unknown_argument[] = "the program does not know its argument %s: see its --help";

/* Rows of one cause stand together. */
static const struct cause causes[] = {
    {{"CUDA out of memory"}, gpu_memory},
    {{"torch.OutOfMemoryError"}, gpu_memory},
    {{"HIP out of memory"}, gpu_memory},
    {{"CUDA_ERROR_OUT_OF_MEMORY"}, gpu_memory},
    {{"cudaErrorMemoryAllocation"}, gpu_memory},
    {{"CUDA error: out of memory"}, gpu_memory},
    {{"CUDA failure", "out of memory"}, gpu_memory},

    {{"out of shared memory"}, shared_memory},
    {{"/dev/shm", "No space left on device"}, shared_memory},
    {{"No space left on device", "/dev/shm"}, shared_memory},
    {{"creating shared memory segment /dev/shm"}, shared_memory},

    {{"DefaultCPUAllocator", "allocate memory"}, memory},
    {{"Cannot allocate memory"}, memory},
    {{"std::bad_alloc"}, memory},
    {{"MemoryError"}, memory},
    {{"killed by signal: Killed"}, memory},

    {{"no CUDA-capable device"}, no_gpu},
    {{"Found no NVIDIA driver"}, no_gpu},
    {{"not compiled with CUDA enabled"},
     "this PyTorch has no CUDA: install a build that has, or choose the CPU and the backend gloo"},
    {{"CUDA driver version is insufficient"},
     "NVIDIA's driver is older than the program's CUDA: update the driver, or take an older build"},
    {{"invalid device ordinal"},
     "there are more workers than GPUs: --nproc-per-node gpu starts one for each"},
    {{"Duplicate GPU detected"},
     "two workers use one GPU: choose it by LOCAL_RANK, as torch.cuda.set_device() does, or pass "
     "--gpu-bind mask"},

    {{"no socket interface found"}, nccl_interface},
    {{"NCCL", "no usable interface"}, nccl_interface},
    {{"NCCL", "No interface found"}, nccl_interface},
    {{"Unable to find interface for: "}, gloo_interface},
    {{"Unable to find address for: "}, gloo_interface},
    {{"gloo", "127.0.1.1"}, gloo_loopback},
    {{"connect", "127.0.1.1"}, gloo_loopback},
    {{"gloo", "unable to connect"},
     "gloo cannot reach another worker: let machines connect to each other on any port, and set "
     "GLOO_SOCKET_IFNAME to the interface between them"},

    {{"EADDRINUSE"}, address_in_use},
    {{"Address already in use"}, address_in_use},

    {{"No module named 'torch'"},
     "this Python has no PyTorch: PYTHON_EXEC names another interpreter, such as that of a virtual "
     "environment",
     "this Python has no PyTorch: give the path of another interpreter, such as that of a virtual "
     "environment, or leave it out (ctrun SCRIPT.py), so that PYTHON_EXEC names it"},
    {{"No module named "},
     "Python finds no module %s: install it where this interpreter looks, set PYTHONPATH, or name "
     "another interpreter by PYTHON_EXEC",
     "Python finds no module %s: install it where this interpreter looks, set PYTHONPATH, or give "
     "the path of another interpreter"},
    {{"error while loading shared libraries: "},
     "the library %s is missing on this machine: install it, or name its folder in "
     "LD_LIBRARY_PATH"},
    {{"ImportError: ", "cannot open shared object file"},
     "a library is missing on this machine: install it, or name its folder in LD_LIBRARY_PATH"},
    {{"can't open file "}, "there is no script %s on this machine: check the path"},

    {{"No space left on device"}, "a disk is full: make room (df -h), or write elsewhere"},
    {{"Disk quota exceeded"},
     "the disk quota is used up: make room (quota -s), or write elsewhere"},
    {{"Read-only file system"}, "it writes where nothing can be written: choose another folder"},
    {{"Too many open files"}, "the limit of open files is too low: raise it with ulimit -n"},
    {{"Resource temporarily unavailable", "thread"}, thread_limit},
    {{"can't start new thread"}, thread_limit},
    {{"Permission denied: "},
     "it has no right to use %s: check its owner and its mode on this machine (ls -l)"},
    {{"Permission denied"},
     "it has no right to do what it tried: check the owner and the mode of the file (ls -l)"},

    {{"Name or service not known"}, unknown_host},
    {{"name resolution"}, unknown_host},
    {{"unrecognized arguments: "}, unknown_argument, .is_argument = true},
    {{"unrecognized option "}, unknown_argument, .is_argument = true},
    {{"unknown option "}, unknown_argument, .is_argument = true},
    {{"No such option: "}, unknown_argument, .is_argument = true},
    {{"Unknown command line flag "}, unknown_argument, .is_argument = true},
    {{"not used by the HfArgumentParser: ["}, unknown_argument, .is_argument = true},
    {{"the following arguments are required"},
     "an argument of the program is missing: see its --help"},
    {{"Watchdog caught collective operation timeout"},
     "another rank did not come to the collective: --hang-timeout names the one that stands still"},
    {{"Timed out waiting", "ms for recv operation"},
     "another rank did not answer: --hang-timeout names the one that stands still"},
    {{"Connection refused"},
     "nobody listens where it connected to: if another rank has failed, look there first; else "
     "check MASTER_ADDR, MASTER_PORT and firewalls"},
    {{"Connection closed by peer"}, peer_gone},
    {{"Connection reset by peer"}, peer_gone},
    {{"ncclRemoteError"}, peer_gone},
    {{"ncclSystemError"}, nccl_failed},
    {{"ncclUnhandledCudaError"}, nccl_failed},
    {{"No such file or directory: "}, "there is no %s on this machine: check the path"},
};

static const struct {
    int code;
    const char *advice;
} exit_codes[] = {
    {126,
     "a command in it cannot be executed: check its mode, and the interpreter in its first line"},
    {127, "a command in it was not found: check PATH"},
    {128 + SIGKILL, "a process in it was killed by SIGKILL; where nobody did it, the kernel or the "
                    "container ran out of memory: see dmesg"},
    {128 + SIGSEGV, "a process in it crashed (SIGSEGV): run that one under a debugger"},
    {128 + SIGABRT, "a process in it gave up (SIGABRT): run that one under a debugger"},
};

static const struct {
    int signo;
    const char *advice;
} signals[] = {
    {SIGILL, "it uses instructions that this processor lacks: build or install it for this one"},
    {SIGXCPU, "its limit of CPU time was used up: raise it with ulimit -t"},
    {SIGXFSZ, "a file reached the limit of its size: raise it with ulimit -f"},
    {SIGPIPE, "it wrote to a pipe that nobody read any more"},
    {SIGHUP, "its terminal was closed: nohup or tmux keeps a job alive"},
};

/* ---- lines ---------------------------------------------------------------------------------- */

/* As strcasestr(), within `len` bytes. */
static const char *find_words(const char *line, size_t len, const char *words)
{
    size_t wanted = strlen(words);
    for (size_t i = 0; i + wanted <= len; i++) {
        if (strncasecmp(line + i, words, wanted) == 0) {
            return line + i;
        }
    }
    return NULL;
}

/* Returns the text behind the words of `cause` in this line, or NULL if it does not have them. */
static const char *match_line(const struct cause *cause, const char *line, size_t len)
{
    const char *end = line + len;
    for (size_t i = 0; i < 2 && cause->words[i] != NULL && line != NULL; i++) {
        line = find_words(line, (size_t)(end - line), cause->words[i]);
        line = line != NULL ? line + strlen(cause->words[i]) : NULL;
    }
    return line;
}

/* Returns the length of the name at *text, which ends at its closing quote (then *text moves behind
 * the opening one), or else at a blank or mark. */
static size_t name_length(const char **text)
{
    char quote = **text;
    if (quote == '\'' || quote == '"') {
        (*text)++;
        const char marks[] = {quote, '\n', '\0'};
        return strcspn(*text, marks);
    }
    return strcspn(*text, " :,;\n");
}

static int add_advice(const char *advice, const char *name, size_t len, struct ct_buf *out)
{
    const char *gap = strstr(advice, "%s");
    if (gap == NULL) {
        ct_buf_addf(out, "%s", advice);
        return ct_buf_status(out);
    }
    len = len < NAME_MAX_SHOWN ? len : NAME_MAX_SHOWN;
    ct_buf_add(out, advice, (size_t)(gap - advice));
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        char shown = c < ' ' || c > '~' ? '?' : (char)c; /* it goes to a terminal */
        ct_buf_add(out, &shown, 1);
    }
    ct_buf_addf(out, "%s", gap + 2);
    return ct_buf_status(out);
}

/* Takes the last line that fits, because the program went on after the earlier ones. */
static const char *match_text(const struct cause *cause, const char *text)
{
    const char *found = NULL;
    while (text != NULL && *text != '\0') {
        size_t len = strcspn(text, "\n");
        const char *behind = match_line(cause, text, len);
        found = behind != NULL ? behind : found;
        text += len + (text[len] == '\n');
    }
    return found;
}

/* ---- options of ctrun that the program was given --------------------------------------------- */

/* The name of an option without its dashes and its value. */
struct name {
    const char *text;
    size_t len;
};

static struct name bare_name(const char *word, size_t len)
{
    const char *end = memchr(word, '=', len);
    size_t left = end != NULL ? (size_t)(end - word) : len;
    while (left > 0 && *word == '-') {
        word++;
        left--;
    }
    return (struct name){word, left};
}

static bool is_given(struct name name, char *const *arguments)
{
    for (; arguments != NULL && *arguments != NULL; arguments++) {
        struct name given = bare_name(*arguments, strlen(*arguments));
        bool is_option = strncmp(*arguments, "--", 2) == 0;
        if (is_option && given.len == name.len && memcmp(given.text, name.text, name.len) == 0) {
            return true;
        }
    }
    return false;
}

/* Finds the first word of the line that names an option of ctrun which stands among the arguments.
 */
static bool find_misplaced(const char *line, char *const *arguments, struct name *out)
{
    static const char between[] = " ,.;:'\"[]";
    size_t left = strcspn(line, "\n");
    while (left > 0) {
        size_t gap = strspn(line, between);
        gap = gap < left ? gap : left;
        line += gap;
        left -= gap;
        size_t len = strcspn(line, between);
        len = len < left ? len : left;
        struct name name = bare_name(line, len);
        if (name.len > 0 && ct_option_by_name(name.text, name.len) != NULL &&
            is_given(name, arguments)) {
            *out = name;
            return true;
        }
        line += len;
        left -= len;
    }
    return false;
}

static int add_misplaced(struct name name, struct ct_buf *out)
{
    char option[NAME_MAX_SHOWN]; /* none of ours is as long */
    int len = snprintf(option, sizeof(option), "--%.*s", (int)name.len, name.text);
    return add_advice(misplaced, option, (size_t)len, out);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static bool has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* Returns the advice that follows from the end alone, or NULL. */
static const char *advice_of_end(const struct ct_cause_facts *facts)
{
    const struct ct_worker_end *end = &facts->end;
    if (end->kind == CT_END_SIGNALED && end->value == SIGBUS && facts->shm_is_full) {
        return shared_memory;
    }
    for (size_t i = 0; end->kind == CT_END_SIGNALED && i < sizeof(signals) / sizeof(signals[0]);
         i++) {
        if (signals[i].signo == end->value) {
            return signals[i].advice;
        }
    }
    return NULL;
}

static const char *advice_of_code(const struct ct_worker_end *end)
{
    for (size_t i = 0; end->kind == CT_END_EXITED && i < sizeof(exit_codes) / sizeof(exit_codes[0]);
         i++) {
        if (exit_codes[i].code == end->value) {
            return exit_codes[i].advice;
        }
    }
    return NULL;
}

/* `behind` is the text behind the words of the cause. */
static int add_cause(const struct ct_cause_facts *facts, const struct cause *cause,
                     const char *behind, struct ct_buf *out)
{
    struct name name;
    if (cause->is_argument && find_misplaced(behind, facts->arguments, &name)) {
        return add_misplaced(name, out);
    }
    bool other = !facts->own_python && cause->other_python != NULL;
    size_t len = name_length(&behind);
    return add_advice(other ? cause->other_python : cause->advice, behind, len, out);
}

int ct_cause_advice(const struct ct_cause_facts *facts, struct ct_buf *out)
{
    const struct ct_worker_end *end = &facts->end;
    bool ran = end->kind == CT_END_EXITED || end->kind == CT_END_SIGNALED;
    const char *const texts[] = {facts->message, facts->traceback, facts->tail};
    if (has_text(facts->memory)) {
        return ct_buf_printf(out,
                             "it was probably out of memory (%s): take a smaller batch or fewer "
                             "workers, or let it have more",
                             facts->memory);
    }
    const char *sure = advice_of_end(facts);
    if (sure != NULL) {
        return ct_buf_printf(out, "%s", sure);
    }
    for (size_t i = 0; ran && i < sizeof(causes) / sizeof(causes[0]); i++) {
        for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
            const char *behind = match_text(&causes[i], texts[t]);
            if (behind != NULL) {
                return add_cause(facts, &causes[i], behind, out);
            }
        }
    }
    const char *code = advice_of_code(end);
    bool has_message = has_text(facts->message) || has_text(facts->tail);
    if (code == NULL && end->kind == CT_END_EXITED && !end->final && !has_message &&
        facts->logged) {
        return ct_buf_printf(out, "it said nothing on stderr; its log files have all its output");
    }
    return ct_buf_printf(out, "%s", code != NULL ? code : ct_worker_end_advice(end, has_message));
}
