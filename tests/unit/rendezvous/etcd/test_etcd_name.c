/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of etcd's endpoints, with a resolver that answers when the test says so. The clock stands
 * still unless the test moves it.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/etcd/etcd_name.h"
#include "rendezvous/etcd/etcd_transfer.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/fault.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000
/* For waits that are meant to run out. */
#define SHORT_MS 50

#define FOUND \
    "{\"header\":{\"revision\":\"7\"},\"succeeded\":true,\"responses\":[{\"response_range\":{}}]}"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool held; /* lookups of "slow.test" wait */
static int lookups, ended;
static const char *address; /* that every name has; NULL = there is no such name */
static atomic_llong moved_ns;
static atomic_bool stands; /* the clock */

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    (void)pthread_mutex_lock(&mutex);
    bool slow = strcmp(node, "slow.test") == 0;
    lookups++;
    while (held && slow) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    const char *found = address;
    ended++;
    (void)pthread_mutex_unlock(&mutex);
    return found == NULL ? EAI_NONAME : __real_getaddrinfo(found, service, hints, list);
}

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    if (stands) {
        *out = (struct timespec){.tv_sec = 1000};
    }
    out->tv_sec += moved_ns / CT_NS_PER_S;
    return rc;
}

/* Gives all names this address from now on, and lets lookups that wait go on. */
static void answer(const char *with)
{
    (void)pthread_mutex_lock(&mutex);
    address = with;
    held = false;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&mutex);
}

static void hold(void)
{
    (void)pthread_mutex_lock(&mutex);
    held = true;
    (void)pthread_mutex_unlock(&mutex);
}

static int count_lookups(void)
{
    (void)pthread_mutex_lock(&mutex);
    int count = lookups;
    (void)pthread_mutex_unlock(&mutex);
    return count;
}

static void wait_for_lookups(int count)
{
    while (count_lookups() < count) {
        (void)usleep(1000);
    }
}

static bool one_runs(void)
{
    (void)pthread_mutex_lock(&mutex);
    bool runs = ended < lookups;
    (void)pthread_mutex_unlock(&mutex);
    return runs;
}

static int setup(void **state)
{
    (void)state;
    lookups = ended = 0;
    moved_ns = 0;
    stands = true;
    answer("127.0.0.1");
    return 0;
}

/* A lookup that goes on must not be one of the next test. */
static int teardown(void **state)
{
    (void)state;
    while (one_runs()) {
        (void)usleep(1000);
    }
    return 0;
}

/* ---- one name ------------------------------------------------------------------------------- */

static struct ct_etcd_name *open_name(const char *host)
{
    struct ct_etcd_name *name = NULL;
    struct ct_err err;
    assert_int_equal(ct_etcd_name_open(host, 5, &name, &err), 0);
    return name;
}

static int get(struct ct_etcd_name *name, char out[CT_ETCD_NAME_MAX], struct ct_err *err)
{
    return ct_etcd_name_get(name, ct_deadline_in(NULL, LONG_MS), -1, out, err);
}

static void addresses_are_in_the_form_of_libcurl(void **state)
{
    static const char *const rows[][2] = {{"127.0.0.1", "a.test:5:127.0.0.1"},
                                          {"fd00::7", "a.test:5:[fd00::7]"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char known[CT_ETCD_NAME_MAX];
        struct ct_err err;
        answer(rows[i][0]);
        struct ct_etcd_name *name = open_name("a.test");
        assert_int_equal(get(name, known, &err), 0);
        assert_string_equal(known, rows[i][1]);
        ct_etcd_name_close(name);
    }
}

/* A request that cannot wait any more leaves the lookup to the next one. */
static void a_slow_lookup_goes_on(void **state)
{
    char known[CT_ETCD_NAME_MAX];
    struct ct_err err;
    (void)state;
    hold();
    struct ct_etcd_name *name = open_name("slow.test");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ct_etcd_name_get(name, ct_clock_now(NULL), -1, known, &err), CT_ETIMEDOUT);
        assert_string_equal(err.text, "host 'slow.test' is still being looked up");
        ct_etcd_name_renew(name);
    }
    answer("127.0.0.1");
    assert_int_equal(get(name, known, &err), 0);
    assert_string_equal(known, "slow.test:5:127.0.0.1");
    assert_int_equal(count_lookups(), 1);
    ct_etcd_name_close(name);
}

static void closing_does_not_wait(void **state)
{
    const uint64_t one = 1;
    char known[CT_ETCD_NAME_MAX];
    struct ct_err err;
    int wake_fd = eventfd(0, EFD_CLOEXEC);
    (void)state;
    hold();
    struct ct_etcd_name *name = open_name("slow.test");
    assert_int_equal(write(wake_fd, &one, sizeof(one)), sizeof(one));
    assert_int_equal(ct_etcd_name_get(name, ct_deadline_in(NULL, LONG_MS), wake_fd, known, &err),
                     CT_EABORTED);
    wait_for_lookups(1);
    ct_etcd_name_close(name);
    answer("127.0.0.1"); /* the lookup frees the name */
    (void)close(wake_fd);
}

/* A name may be made known while the job waits, but the resolver is not asked all the time. */
static void a_name_that_is_not_known_is_looked_up_again(void **state)
{
    char known[CT_ETCD_NAME_MAX];
    struct ct_err err;
    (void)state;
    answer(NULL);
    struct ct_etcd_name *name = open_name("new.test");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(get(name, known, &err), CT_EIO);
        assert_non_null(strstr(err.text, "cannot resolve host 'new.test': "));
    }
    assert_int_equal(count_lookups(), 1);
    answer("127.0.0.1");
    moved_ns += CT_NS_PER_S;
    assert_int_equal(get(name, known, &err), 0);
    assert_int_equal(count_lookups(), 2);
    ct_etcd_name_close(name);
}

static void addresses_are_kept_until_there_are_new_ones(void **state)
{
    char known[CT_ETCD_NAME_MAX];
    struct ct_err err;
    (void)state;
    struct ct_etcd_name *name = open_name("slow.test");
    assert_int_equal(get(name, known, &err), 0);
    ct_etcd_name_renew(name); /* it has just been looked up */
    assert_int_equal(count_lookups(), 1);
    for (int i = 0; i < 2; i++) {
        const char *const next = i == 0 ? NULL : "127.0.0.2"; /* first the resolver fails */
        int before = count_lookups();
        hold();
        do { /* the end of the lookup before is not seen from here */
            moved_ns += CT_NS_PER_S;
            ct_etcd_name_renew(name);
            (void)usleep(1000);
        } while (count_lookups() == before);
        ct_etcd_name_answered(name); /* else it would be waited for */
        assert_int_equal(get(name, known, &err), 0);
        assert_string_equal(known, "slow.test:5:127.0.0.1");
        answer(next);
        while (one_runs()) {
            (void)usleep(1000);
        }
    }
    while (strcmp(known, "slow.test:5:127.0.0.2") != 0) {
        (void)usleep(1000);
        assert_int_equal(get(name, known, &err), 0);
    }
    ct_etcd_name_close(name);
}

/* Another server may have the address by now. */
static void old_addresses_are_looked_up_before_they_are_used(void **state)
{
    char known[CT_ETCD_NAME_MAX];
    struct ct_err err;
    (void)state;
    struct ct_etcd_name *name = open_name("slow.test");
    assert_int_equal(get(name, known, &err), 0);
    moved_ns += 50 * CT_NS_PER_S;
    ct_etcd_name_answered(name);
    moved_ns += 50 * CT_NS_PER_S;
    assert_int_equal(get(name, known, &err), 0);
    assert_int_equal(count_lookups(), 1);
    moved_ns += 10 * CT_NS_PER_S;
    hold();
    assert_int_equal(ct_etcd_name_get(name, ct_clock_now(NULL), -1, known, &err), 0);
    assert_string_equal(known, "slow.test:5:127.0.0.1"); /* better than none */
    answer("127.0.0.2");
    assert_int_equal(get(name, known, &err), 0);
    assert_string_equal(known, "slow.test:5:127.0.0.2");
    assert_int_equal(count_lookups(), 2);
    ct_etcd_name_close(name);
}

static int look_up_once(void *data)
{
    struct ct_etcd_name *name = NULL;
    char known[CT_ETCD_NAME_MAX];
    struct ct_err err;
    (void)data;
    int rc = ct_etcd_name_open("a.test", 5, &name, &err);
    rc = rc == 0 ? get(name, known, &err) : rc;
    ct_etcd_name_close(name);
    return rc;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(look_up_once, NULL, 0) > 0);
}

/* ---- requests ------------------------------------------------------------------------------- */

struct rig {
    struct ct_etcd_transfer *transfer;
    struct ct_etcd_reply reply;
    atomic_bool closing;
    int wake_fd;
};

static void rig_begin(struct rig *r, const char *endpoints, int64_t connect_ms)
{
    static char *const no_env[] = {NULL};
    static struct ct_etcd_settings settings;
    const struct ct_etcd_limits limits = {connect_ms, LONG_MS, LONG_MS};
    struct ct_err err;
    memset(r, 0, sizeof(*r));
    stands = false;
    r->wake_fd = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(ct_etcd_settings_read(endpoints, no_env, &settings, &err), 0);
    assert_int_equal(
        ct_etcd_transfer_open(&settings, &limits, &r->closing, r->wake_fd, &r->transfer, &err), 0);
}

/* Returns the code of one request. */
static int ask(struct rig *r)
{
    const struct ct_etcd_txn txn = {.then = {{.what = CT_ETCD_GET, .key = "k"}}, .num_then = 1};
    struct ct_etcd_request request = {.call = CT_ETCD_TXN, .body = CT_BUF_INIT};
    struct ct_err err;
    assert_int_equal(ct_etcd_message_txn(&txn, &request.shape, &request.body, &err), 0);
    request.deadline_ns = ct_deadline_in(NULL, LONG_MS);
    ct_etcd_transfer_run(r->transfer, &request, &r->reply);
    ct_buf_fini(&request.body);
    ct_etcd_reply_fini(&r->reply);
    return r->reply.rc;
}

static void rig_end(struct rig *r)
{
    ct_etcd_transfer_close(r->transfer);
    (void)close(r->wake_fd);
}

static const struct etcd_step found = {.status = 200, .body = FOUND};

static void a_request_goes_to_the_address_of_the_name(void **state)
{
    struct etcd_member m;
    struct rig r;
    char endpoint[64], host[80];
    (void)state;
    etcd_member_start(&m, &found, 1);
    (void)snprintf(endpoint, sizeof(endpoint), "a.test:%d", m.port);
    rig_begin(&r, endpoint, LONG_MS);
    assert_int_equal(ask(&r), 0);
    assert_int_equal(ask(&r), 0);
    assert_int_equal(count_lookups(), 1);
    rig_end(&r);
    etcd_member_stop(&m);
    (void)snprintf(host, sizeof(host), "\r\nHost: %s\r\n", endpoint);
    assert_non_null(strstr(m.requests[0], host));
}

/* The time for a connection does not begin before the name is known. */
static void a_slow_name_server_only_holds_up_the_first_request(void **state)
{
    struct etcd_member m;
    struct rig r;
    char endpoint[64], text[160];
    (void)state;
    etcd_member_start(&m, &found, 1);
    (void)snprintf(endpoint, sizeof(endpoint), "slow.test:%d", m.port);
    hold();
    rig_begin(&r, endpoint, SHORT_MS);
    assert_int_equal(ask(&r), CT_ETIMEDOUT);
    (void)snprintf(text, sizeof(text),
                   "etcd at http://slow.test:%d: host 'slow.test' is still being looked up",
                   m.port);
    assert_string_equal(r.reply.err.text, text);
    answer("127.0.0.1");
    while (ask(&r) != 0) { /* a busy machine may need longer than this to connect */
        assert_int_equal(r.reply.rc, CT_ETIMEDOUT);
    }
    rig_end(&r);
    etcd_member_stop(&m);
}

/* CT_ENOENT would mean that a lease has ended. */
static void a_name_that_is_not_known_is_like_a_member_that_is_away(void **state)
{
    struct rig r;
    (void)state;
    answer(NULL);
    rig_begin(&r, "a.test,b.test", LONG_MS);
    assert_int_equal(ask(&r), CT_EIO);
    assert_non_null(strstr(r.reply.err.text, "a.test:2379: cannot resolve host 'a.test': "));
    assert_non_null(strstr(r.reply.err.text, "b.test:2379: cannot resolve host 'b.test': "));
    rig_end(&r);
}

static void another_endpoint_answers_meanwhile(void **state)
{
    struct etcd_member m;
    struct rig r;
    char endpoints[96];
    (void)state;
    etcd_member_start(&m, &found, 1);
    (void)snprintf(endpoints, sizeof(endpoints), "slow.test:1,a.test:%d", m.port);
    hold();
    rig_begin(&r, endpoints, SHORT_MS);
    while (ask(&r) != 0) { /* a busy machine may need longer than this to connect */
        assert_int_equal(r.reply.rc, CT_ETIMEDOUT);
    }
    wait_for_lookups(2);
    answer("127.0.0.1");
    rig_end(&r);
    etcd_member_stop(&m);
}

static void a_member_that_has_moved_is_found(void **state)
{
    struct etcd_member m;
    struct rig r;
    char endpoint[64];
    (void)state;
    etcd_member_start(&m, &found, 1);
    (void)snprintf(endpoint, sizeof(endpoint), "a.test:%d", m.port);
    answer("127.0.0.2"); /* where nobody listens */
    rig_begin(&r, endpoint, LONG_MS);
    assert_int_equal(ask(&r), CT_EIO);
    answer("127.0.0.1");
    while (ask(&r) != 0) {
        assert_int_equal(r.reply.rc, CT_EIO);
        moved_ns += CT_NS_PER_S;
    }
    rig_end(&r);
    etcd_member_stop(&m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_may_run_out), /* while no thread of another test can free memory */
        TEST(addresses_are_in_the_form_of_libcurl),
        TEST(a_slow_lookup_goes_on),
        TEST(closing_does_not_wait),
        TEST(a_name_that_is_not_known_is_looked_up_again),
        TEST(addresses_are_kept_until_there_are_new_ones),
        TEST(old_addresses_are_looked_up_before_they_are_used),
        TEST(a_request_goes_to_the_address_of_the_name),
        TEST(a_slow_name_server_only_holds_up_the_first_request),
        TEST(a_name_that_is_not_known_is_like_a_member_that_is_away),
        TEST(another_endpoint_answers_meanwhile),
        TEST(a_member_that_has_moved_is_found),
    };
    return cmocka_run_group_tests_name("etcd_name", tests, NULL, NULL);
}
