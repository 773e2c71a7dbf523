/* Messages to ourselves: what a popped array can be used for, how often, and what results hold.
 * The runtime's address must be 10.0.0.2. */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "calls.h"

static const struct sockaddr_in *self(int port)
{
    static struct sockaddr_in addr;
    addr = in4("10.0.0.2", port);
    return &addr;
}

#define SELF(port) (const struct sockaddr *)self(port), sizeof(struct sockaddr_in)

static demi_sgarray_t array_of(uint32_t size, int fill)
{
    demi_sgarray_t sga = demi_sgaalloc(size);
    REQUIRE(sga.sga_numsegs == 1 && sga.sga_segs[0].sgaseg_len == size);
    if (sga.sga_numsegs == 1)
        memset(sga.sga_segs[0].sgaseg_buf, fill, size);
    return sga;
}

static demi_qresult_t wait_for(demi_qtoken_t qt, int opcode)
{
    demi_qresult_t result = {0};
    EXPECT(0, demi_wait(&result, qt, &PATIENCE));
    REQUIRE((int)result.qr_opcode == opcode && result.qr_qt == qt);
    REQUIRE(opcode == DEMI_OPC_FAILED ? result.qr_ret > 0 : result.qr_ret == 0);
    return result;
}

static demi_sgarray_t pop_from(int qd)
{
    demi_qtoken_t qt;
    EXPECT(0, demi_pop(&qt, qd));
    demi_qresult_t result = wait_for(qt, DEMI_OPC_POP);
    REQUIRE(result.qr_qd == qd);
    return result.qr_value.sga;
}

static void expect_bytes(const demi_sgarray_t *sga, uint32_t size, int fill)
{
    REQUIRE(sga->sga_numsegs == 1 && sga->sga_segs[0].sgaseg_len == size);
    const unsigned char *bytes = sga->sga_segs[0].sgaseg_buf;
    for (uint32_t i = 0; i < size && sga->sga_segs[0].sgaseg_len == size; i++)
        if (bytes[i] != (unsigned char)fill) {
            REQUIRE(!"the bytes are those that were sent");
            return;
        }
}

/* Sizes around each limit there is: a copied push, 64 KiB, the longest message. */
static void datagrams_there_and_back(void)
{
    static const uint32_t SIZES[] = {1, 1424, 4096, 4097, 65535, 65536, 1000000};
    int near = new_socket(0), far = bound_socket(0, 0x1234);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        demi_qtoken_t push, echo;
        demi_sgarray_t sent = array_of(SIZES[i], (int)i + 1);
        EXPECT(0, demi_pushto(&push, near, &sent, SELF(0x1234)));
        EXPECT(0, demi_sgafree(&sent));
        demi_sgarray_t got = pop_from(far);
        expect_bytes(&got, SIZES[i], (int)i + 1);
        struct sockaddr_in from = got.sga_addr;
        EXPECT(0, demi_pushto(&echo, far, &got, (struct sockaddr *)&from, sizeof from));
        EXPECT(0, demi_sgafree(&got));
        EXPECT(EINVAL, demi_sgafree(&got));
        demi_sgarray_t back = pop_from(near);
        expect_bytes(&back, SIZES[i], (int)i + 1);
        /* Family, port and address in network order, and zeroes. */
        static const unsigned char ADDR[16] = {2, 0, 0x12, 0x34, 10, 0, 0, 2};
        REQUIRE(memcmp(&back.sga_addr, ADDR, sizeof ADDR) == 0);
        EXPECT(0, demi_sgafree(&back));
        demi_qresult_t done = wait_for(push, DEMI_OPC_PUSH);
        static const unsigned char ZEROES[sizeof done.qr_value];
        REQUIRE(memcmp(&done.qr_value, ZEROES, sizeof ZEROES) == 0);
        wait_for(echo, DEMI_OPC_PUSH);
        EXPECT(EINVAL, demi_wait(&done, push, &AT_ONCE));
    }
    EXPECT(0, demi_close(near));
    EXPECT(0, demi_close(far));
}

/* The application may show less of an array, before a push and before a free. */
static void a_view_may_be_shrunk(void)
{
    demi_qtoken_t push;
    int near = new_socket(0), far = bound_socket(0, 1000);
    demi_sgarray_t sga = array_of(100, 1);
    char *bytes = sga.sga_segs[0].sgaseg_buf;
    memset(bytes + 10, 2, 20);
    sga.sga_segs[0].sgaseg_buf = bytes + 10;
    sga.sga_segs[0].sgaseg_len = 20;
    EXPECT(0, demi_pushto(&push, near, &sga, SELF(1000)));
    wait_for(push, DEMI_OPC_PUSH);
    sga.sga_segs[0].sgaseg_len = 1000001;
    EXPECT(EMSGSIZE, demi_pushto(&push, near, &sga, SELF(1000)));
    sga.sga_segs[0].sgaseg_len = 91; /* One more than there is. */
    EXPECT(EINVAL, demi_pushto(&push, near, &sga, SELF(1000)));
    EXPECT(0, demi_sgafree(&sga));
    demi_sgarray_t got = pop_from(far);
    expect_bytes(&got, 20, 2);
    got.sga_segs[0].sgaseg_len = 21;
    EXPECT(EINVAL, demi_pushto(&push, far, &got, SELF(1000)));
    got.sga_segs[0].sgaseg_len = 1;
    EXPECT(0, demi_sgafree(&got));
    EXPECT(EINVAL, demi_pushto(&push, far, &got, SELF(1000)));
    EXPECT(0, demi_close(near));
    EXPECT(0, demi_close(far));
}

static void calls_and_replies(void)
{
    demi_qtoken_t call, reply = 7;
    uint64_t id = 0;
    int near = new_socket(IPPROTO_HOMA), far = bound_socket(146, 1000);
    demi_sgarray_t sga = array_of(100, 1), answer = array_of(5000, 2);
    struct demi_homa_msg_info info = {.size = sizeof info};
    EXPECT(0, demi_homa_call(&call, near, &sga, SELF(1000), 0x0123456789abcdef, 0, &id));
    EXPECT(0, demi_sgafree(&sga));
    REQUIRE(id != 0 && id % 2 == 0);
    demi_sgarray_t request = pop_from(far);
    EXPECT(0, demi_homa_info(&request, &info));
    REQUIRE(info.kind == DEMI_HOMA_REQUEST && info.id == (id | 1) && info.length == 100);
    REQUIRE(info.error == 0 && info.completion_cookie == 0 && info.size == sizeof info);
    const struct sockaddr *peer = (const struct sockaddr *)&info.peer;
    EXPECT(EINVAL, demi_homa_reply(NULL, far, info.id & ~UINT64_C(1), peer, 16, &answer));
    EXPECT(0, demi_homa_reply(&reply, far, info.id, peer, sizeof info.peer, &answer));
    /* The first answer is with the caller already, so this one is for an RPC that is gone. */
    EXPECT(0, demi_homa_reply(NULL, far, info.id, peer, sizeof info.peer, &answer));
    EXPECT(0, demi_sgafree(&request));
    EXPECT(EINVAL, demi_homa_info(&request, &info));
    demi_qresult_t result = wait_for(call, DEMI_OPC_POP);
    demi_sgarray_t response = result.qr_value.sga;
    expect_bytes(&response, 5000, 2);
    EXPECT(0, demi_homa_info(&response, &info));
    REQUIRE(info.kind == DEMI_HOMA_RESPONSE && info.id == id && info.length == 5000);
    REQUIRE(info.completion_cookie == 0x0123456789abcdef);
    REQUIRE(memcmp(&info.peer, self(1000), sizeof(struct sockaddr_in)) == 0);
    EXPECT(0, demi_sgafree(&response));
    EXPECT(0, demi_close(near)); /* Which acknowledges the response. */
    wait_for(reply, DEMI_OPC_PUSH);
    EXPECT(EINVAL, demi_homa_abort(far, id, 0));
    EXPECT(0, demi_sgafree(&answer));
    EXPECT(0, demi_close(far));
}

static void calls_end_once(void)
{
    demi_qtoken_t one, two, three;
    demi_qresult_t result;
    uint64_t id;
    int near = new_socket(146), far = bound_socket(146, 1000), other = new_socket(146);
    demi_sgarray_t sga = array_of(100, 1);
    EXPECT(0, demi_homa_call(&one, near, &sga, SELF(1000), 1, 0, &id));
    EXPECT(0, demi_homa_call(&two, near, &sga, SELF(1000), 2, 0, NULL));
    EXPECT(EINVAL, demi_homa_abort(other, id, 0)); /* Another socket's. */
    EXPECT(EINVAL, demi_homa_abort(near, id + 2, 0));
    EXPECT(0, demi_homa_abort(near, id, EDOM));
    EXPECT(EINVAL, demi_homa_abort(near, id, EDOM));
    result = wait_for(one, DEMI_OPC_FAILED);
    REQUIRE(result.qr_ret == EDOM && result.qr_qd == near);
    EXPECT(0, demi_homa_abort(near, 0, 0));
    EXPECT(0, demi_homa_abort(near, 0, 0)); /* None is left, which is no error. */
    REQUIRE(wait_for(two, DEMI_OPC_FAILED).qr_ret == ECANCELED);

    /* A closed port, and a socket that is closed while it waits. */
    EXPECT(0, demi_homa_call(&one, near, &sga, SELF(9), 0, 0, NULL));
    REQUIRE(wait_for(one, DEMI_OPC_FAILED).qr_ret == ENOTCONN);
    EXPECT(0, demi_homa_call(&three, near, &sga, SELF(1000), 0, 0, NULL));
    EXPECT(0, demi_close(near));
    EXPECT(0, demi_wait(&result, three, &AT_ONCE));
    REQUIRE(result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret == ECANCELED);
    EXPECT(EINVAL, demi_wait(&result, three, &AT_ONCE));
    EXPECT(EBADF, demi_homa_call(&one, near, &sga, SELF(1000), 0, 0, NULL));
    EXPECT(0, demi_sgafree(&sga));
    EXPECT(0, demi_close(far));
    EXPECT(0, demi_close(other));
}

/* A token stands twice in an array, results are written to odd places, and a descriptor that is
 * used again gets nothing of what was before. */
static void waits_in_odd_ways(void)
{
    char memory[3 * sizeof(demi_qresult_t) + 2];
    demi_qresult_t *unaligned = (demi_qresult_t *)(memory + 1), result;
    demi_qtoken_t push, pop, twice[2];
    int at = -7, count, near = new_socket(0), far = bound_socket(0, 1000);
    demi_sgarray_t sga = array_of(10, 1);
    EXPECT(0, demi_pushto(&push, near, &sga, SELF(1000)));
    EXPECT(0, demi_sgafree(&sga));
    EXPECT(0, demi_pop(&pop, far));
    twice[0] = twice[1] = pop;
    EXPECT(0, demi_wait_any(unaligned, &at, twice, 2, &PATIENCE));
    REQUIRE((at == 0 || at == 1) && unaligned->qr_qt == pop);
    EXPECT(EINVAL, demi_wait_any(&result, &at, twice, 2, &AT_ONCE));
    demi_sgarray_t got = unaligned->qr_value.sga;
    EXPECT(0, demi_sgafree(&got));
    EXPECT(ETIMEDOUT, demi_wait_next_n(unaligned, 3, &count, &AT_ONCE));
    REQUIRE(count == 1 && unaligned->qr_qt == push && unaligned->qr_opcode == DEMI_OPC_PUSH);

    EXPECT(0, demi_pop(&pop, far));
    EXPECT(0, demi_close(far));
    REQUIRE(bound_socket(0, 1000) == far);
    EXPECT(0, demi_wait(&result, pop, &AT_ONCE));
    REQUIRE(result.qr_opcode == DEMI_OPC_FAILED && result.qr_qd == far);
    EXPECT(0, demi_pop(&pop, far));
    EXPECT(ETIMEDOUT, demi_wait(&result, pop, &AT_ONCE));
    EXPECT(0, demi_close(far));
    EXPECT(0, demi_wait(&result, pop, &AT_ONCE));
    EXPECT(0, demi_close(near));
}

int main(int argc, char *argv[])
{
    /* By its environment, as most of Demikernel's programs are told their settings. */
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--config") == 0)
            setenv("CONFIG_PATH", argv[i + 1], 1);
    if (demi_init(NULL) != 0)
        return 2;
    datagrams_there_and_back();
    a_view_may_be_shrunk();
    calls_and_replies();
    calls_end_once();
    waits_in_odd_ways();
    return failures != 0;
}
