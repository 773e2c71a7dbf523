/* The layout of Demikernel 1.5.13 and of Linux Homa's structures, in C11 and in C++17. */

#include <demi/cc.h>
#include <demi/homa.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/types.h>
#include <demi/wait.h>

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
#define ALIGNMENT(type) alignof(type)
#else
#define CHECK(condition) _Static_assert(condition, #condition)
#define ALIGNMENT(type) _Alignof(type)
#endif
#define SIZE(type, size, alignment) CHECK(sizeof(type) == size && ALIGNMENT(type) == alignment)
#define AT(type, member, offset) CHECK(offsetof(type, member) == offset)

SIZE(demi_qtoken_t, 8, 8);

SIZE(demi_sgaseg_t, 12, 1);
AT(demi_sgaseg_t, sgaseg_buf, 0);
AT(demi_sgaseg_t, sgaseg_len, 8);

CHECK(DEMI_SGARRAY_MAXSIZE == 1);
SIZE(demi_sgarray_t, 40, 1);
AT(demi_sgarray_t, sga_buf, 0);
AT(demi_sgarray_t, sga_numsegs, 8);
AT(demi_sgarray_t, sga_segs, 12);
AT(demi_sgarray_t, sga_addr, 24);

SIZE(demi_opcode_t, 4, 4);
CHECK(DEMI_OPC_INVALID == 0 && DEMI_OPC_PUSH == 1 && DEMI_OPC_POP == 2);
CHECK(DEMI_OPC_ACCEPT == 3 && DEMI_OPC_CONNECT == 4 && DEMI_OPC_CLOSE == 5);
CHECK(DEMI_OPC_FAILED == 6);

SIZE(demi_accept_result_t, 20, 1);
AT(demi_accept_result_t, qd, 0);
AT(demi_accept_result_t, addr, 4);

SIZE(demi_qresult_t, 64, 1);
AT(demi_qresult_t, qr_opcode, 0);
AT(demi_qresult_t, qr_qd, 4);
AT(demi_qresult_t, qr_qt, 8);
AT(demi_qresult_t, qr_ret, 16);
AT(demi_qresult_t, qr_value, 24);
AT(demi_qresult_t, qr_value.sga, 24);
AT(demi_qresult_t, qr_value.ares, 24);

SIZE(struct demi_args, 20, 1);
AT(struct demi_args, argc, 0);
AT(struct demi_args, argv, 4);
AT(struct demi_args, callback, 12);

/* Programs use tags and typedefs. */
SIZE(struct demi_sgaseg, 12, 1);
SIZE(struct demi_sgarray, 40, 1);
SIZE(struct demi_accept_result, 20, 1);
SIZE(struct demi_qresult, 64, 1);
SIZE(enum demi_opcode, 4, 4);
SIZE(demi_callback_t, 8, 8);

CHECK(HOMA_MAX_MESSAGE_LENGTH == 1000000);
CHECK(HOMA_BPAGE_SHIFT == 16 && HOMA_BPAGE_SIZE == 65536 && HOMA_MAX_BPAGES == 16);
CHECK(HOMA_MIN_DEFAULT_PORT == 0x8000);
CHECK(IPPROTO_HOMA == 0xFD || IPPROTO_HOMA == 146);
CHECK(HOMA_RECVMSG_REQUEST == 1 && HOMA_RECVMSG_RESPONSE == 2);
CHECK(HOMA_RECVMSG_NONBLOCKING == 4 && HOMA_RECVMSG_VALID_FLAGS == 7);
CHECK(SO_HOMA_SET_BUF == 10 && SO_HOMA_SERVER == 11 && HOMA_FLAG_DONT_THROTTLE == 2);
CHECK(HOMAIOCABORT == 0xc02089e3 && HOMAIOCFREEZE == 0x89ef);

SIZE(sockaddr_in_union, 28, 4);
SIZE(union sockaddr_in_union, 28, 4);
AT(sockaddr_in_union, sa, 0);
AT(sockaddr_in_union, in4, 0);
AT(sockaddr_in_union, in6, 0);

SIZE(struct homa_sendmsg_args, 16, 8);
AT(struct homa_sendmsg_args, id, 0);
AT(struct homa_sendmsg_args, completion_cookie, 8);

SIZE(struct homa_recvmsg_args, 96, 8);
AT(struct homa_recvmsg_args, id, 0);
AT(struct homa_recvmsg_args, completion_cookie, 8);
AT(struct homa_recvmsg_args, flags, 16);
AT(struct homa_recvmsg_args, num_bpages, 20);
AT(struct homa_recvmsg_args, _pad, 24);
AT(struct homa_recvmsg_args, bpage_offsets, 32);

SIZE(struct homa_abort_args, 32, 8);
AT(struct homa_abort_args, id, 0);
AT(struct homa_abort_args, error, 8);
AT(struct homa_abort_args, _pad1, 12);
AT(struct homa_abort_args, _pad2, 16);

SIZE(struct homa_set_buf_args, 16, 8);
AT(struct homa_set_buf_args, start, 0);
AT(struct homa_set_buf_args, length, 8);

CHECK(SO_HOMA_FLAGS == 12 && HOMA_ERROR_MSG_SIZE == 128);
SIZE(struct homa_rpc_info, 88, 8);
AT(struct homa_rpc_info, peer, 16);
AT(struct homa_rpc_info, error, 44);
AT(struct homa_rpc_info, flags, 80);
SIZE(struct homa_info, 168, 8);
AT(struct homa_info, bpool_avail_bytes, 8);
AT(struct homa_info, rpc_info, 24);
AT(struct homa_info, error_msg, 40);

CHECK(DEMI_HOMA_REQUEST == 1 && DEMI_HOMA_RESPONSE == 2);
SIZE(struct demi_homa_msg_info, 160, 8);
AT(struct demi_homa_msg_info, size, 0);
AT(struct demi_homa_msg_info, kind, 4);
AT(struct demi_homa_msg_info, id, 8);
AT(struct demi_homa_msg_info, completion_cookie, 16);
AT(struct demi_homa_msg_info, length, 24);
AT(struct demi_homa_msg_info, error, 28);
AT(struct demi_homa_msg_info, peer, 32);

/* The annotations expand to nothing that changes a declaration. */
ATTR_NODISCARD ATTR_NONNULL(1)
int annotated(_Out_ int *out, _In_ int in, _In_z_ const char *name, _Inout_ int *both,
              _In_opt_ const int *maybe, _In_reads_(in) const int *ints,
              _In_reads_bytes_(in) const void *bytes, _Out_writes_to_(in, *both) int *written);

int main(void)
{
    return 0;
}
