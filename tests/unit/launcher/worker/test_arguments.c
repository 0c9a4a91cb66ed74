/* SPDX-License-Identifier: Apache-2.0
 *
 * Placeholders in the arguments of workers, and what is refused as a mistake.
 */
#include "tests/lib/ct_test.h"

#include "launcher/worker/arguments.h"

static const struct ct_job_ports ports = {2, {{"jax", 20001}, {"Rpc_2", 20002}}};

static const struct ct_worker_env env = {
    .local_world_size = 4,
    .first_local_rank = 2,
    .first_rank = 8,
    .world_size = 16,
    .node_rank = 3,
    .node_count = 5,
    .master_addr = "fd00::7",
    .master_port = 29500,
    .ports = &ports,
};

static void every_value_is_replaced(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"plain", "plain"},
        {"${local_rank}", "3"},
        {"$local_rank", "3"},
        {"a$local_rank.txt", "a3.txt"},
        {"${local_rank}${local_rank}x", "33x"},
        {"${rank}/${world_size}", "9/16"},
        {"${local_world_size} ${node_rank} ${nnodes}", "4 3 5"},
        {"[${master_addr}]:${master_port}", "[fd00::7]:29500"},
        {"--at=${master_addr}:${port:jax}", "--at=fd00::7:20001"},
        {"${port:Rpc_2}", "20002"},
        /* Names of PyTorch's only are replaced without braces. */
        {"$rank $world_size $nnodes", "$rank $world_size $nnodes"},
        {"$local_ranks", "$local_ranks"},
        {"${local_rank", "${local_rank"},
        {"${local_rank }", "${local_rank }"},
        {"$LOCAL_RANK", "$LOCAL_RANK"},
        {"${HOME} ${port} ${port:-1} ${port:jax", "${HOME} ${port} ${port:-1} ${port:jax"},
        {"$$", "$"},
        {"$${local_rank}", "${local_rank}"},
        {"$${port:jax}", "${port:jax}"},
        {"$", "$"},
        {"100$", "100$"},
        {"$1", "$1"},
        {"", ""},
    };
    char *argv[sizeof(rows) / sizeof(rows[0]) + 2] = {(char *)"$local_rank"};
    struct ct_strlist args = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        argv[i + 1] = (char *)rows[i].in;
    }
    assert_int_equal(ct_arguments_expand(argv, &env, 1, &args, NULL), 0);
    assert_string_equal(args.list[0], "$local_rank"); /* the program's name is no argument */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(args.list[i + 1], rows[i].out);
    }
    assert_null(args.list[sizeof(rows) / sizeof(rows[0]) + 1]);
    ct_strlist_fini(&args);
}

/* More entries than the list's first size. */
static void long_lists_stay_whole(void **state)
{
    char *argv[300] = {NULL};
    struct ct_strlist args = {0};
    (void)state;
    for (size_t i = 0; i < 299; i++) {
        argv[i] = (char *)(i % 2 == 0 ? "x" : "-${local_rank}-");
    }
    assert_int_equal(ct_arguments_expand(argv, &env, 5, &args, NULL), 0);
    for (size_t i = 0; i < 299; i++) {
        assert_string_equal(args.list[i], i % 2 == 0 ? "x" : "-7-");
    }
    assert_null(args.list[299]);
    ct_strlist_fini(&args);
}

static void a_port_without_a_number_starts_nothing(void **state)
{
    const struct ct_job_ports unknown[] = {{2, {{"jax", 20001}, {"other", 0}}},
                                           {2, {{"other", 0}, {"jax", 20001}}}};
    char *argv[] = {(char *)"p", NULL};
    struct ct_worker_env own = env;
    struct ct_strlist args = {0};
    struct ct_err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        own.ports = &unknown[i];
        assert_int_equal(ct_arguments_expand(argv, &own, 0, &args, &err), CT_ENOENT);
        assert_non_null(strstr(err.text, "no port 'other'"));
    }
    ct_strlist_fini(&args);
}

static int check(const char *argument, struct ct_job_ports *found, struct ct_err *err)
{
    char *argv[] = {(char *)"${ranks}", (char *)argument, NULL};
    *found = (struct ct_job_ports){0};
    *err = (struct ct_err){0};
    return ct_arguments_check(argv, found, err);
}

static void ports_are_found(void **state)
{
    struct ct_job_ports found;
    struct ct_err err;
    (void)state;
    assert_int_equal(check("x${port:a}${port:b2} $${port:c} ${port:a}", &found, &err), 0);
    assert_int_equal(found.count, 2);
    assert_string_equal(found.list[0].name, "a");
    assert_string_equal(found.list[1].name, "b2");
}

static void mistakes_are_refused_and_a_shells_variables_are_not(void **state)
{
    static const struct {
        const char *argument, *text; /* NULL = it is accepted */
    } rows[] = {
        {"--n=${world-size}", "did you mean ${world_size}?"},
        {"${word_size}", "did you mean ${world_size}?"},
        {"${local_ranks}", "did you mean ${local_rank}?"},
        {"${master_adr}", "did you mean ${master_addr}?"},
        {"a ${ranks}", "argument 'a ${ranks}': ${ranks} is no value"},
        {"${port:}", "cannot be the name of a port"},
        {"${port:a b}", "'a b' cannot be the name of a port"},
        {"${port:a-b}", "argument '${port:a-b}'"},
        {"${port:a}${port:A}", "the same variable"},
        {"${port:a2345678901234567890123456789012x}", "too long"},
        {"${ports:http}", "did you mean ${port:http}?"},
        {"-p ${prt:http}", "argument '-p ${prt:http}': did you mean ${port:http}?"},
        {"${prot:http}", "did you mean ${port:http}?"},
        {"${PORT:http}", "did you mean ${port:http}?"},
        {"${Port: http }", "did you mean ${port:http}?"},
        {"${port: http}", "argument '${port: http}': did you mean ${port:http}?"},
        {"${port:1x}", "'1x' cannot be the name of a port"},
        {"${Rank}", "${Rank} is no value of a worker; did you mean ${rank}?"},
        {"${ rank }", "did you mean ${rank}?"},
        {"--n=${World_Size}", "did you mean ${world_size}?"},
        {"${Master_addr}", "did you mean ${master_addr}?"},
        {"$port:http", "did you mean ${port:http}?"},
        {"--port=$port:http", "did you mean ${port:http}?"},
        {"${part:http} ${sport:x} ${host:x} ${ports:1} ${ports:-8080} ${PORTS:x}", NULL},
        {"echo $port:http", NULL},
        {"port=$port:http", NULL},
        {"$port:80 $${ports:x}", NULL},
        {"$${world-size}", NULL},
        {"$world-size ${WORLD_SIZ} ${HOME} ${i} ${file} ${name}", NULL},
        {"${rank:-0} ${port:-8080} ${port:1:2} ${port:=x} ${port:?y} ${port:+z}", NULL},
        {"${world_size} ${rank} ${nnodes} ${master_addr}", NULL},
        {"${RANK} ${ RANK } ${WORLD_SIZE} ${WORLD-SIZE} ${MASTER_ADDR} ${Ranked} ${ }", NULL},
        {"${PORT} ${PORT:-80} ${PORT:1} ${PORT: -1} ${port: -1} ${port: } ${port:1} ${port:1:x}",
         NULL},
        {"$${Rank} $${port: http}", NULL},
        {"${world-size", NULL},
        {"$", NULL},
    };
    struct ct_job_ports found;
    struct ct_err err;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int rc = check(rows[i].argument, &found, &err);
        if (rows[i].text == NULL) {
            assert_int_equal(rc, 0);
        } else {
            bool refused = rc == CT_EINVAL || rc == CT_ELIMIT;
            if (!refused || strstr(err.text, rows[i].text) == NULL) {
                fail_msg("%s: %d, %s", rows[i].argument, rc, err.text);
            }
        }
    }
}

static int sweep_body(void *data)
{
    char *const argv[] = {(char *)"p", (char *)"$local_rank ${port:jax}", NULL};
    struct ct_strlist args = {0};
    int rc = ct_arguments_expand(argv, &env, 0, &args, NULL);
    (void)data;
    ct_strlist_fini(&args);
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(sweep_body, NULL, 0) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_replaced),
        cmocka_unit_test(long_lists_stay_whole),
        cmocka_unit_test(a_port_without_a_number_starts_nothing),
        cmocka_unit_test(ports_are_found),
        cmocka_unit_test(mistakes_are_refused_and_a_shells_variables_are_not),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
