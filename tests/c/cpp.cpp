// The headers in C++17: declarations have C linkage, and values pass through.

#include <demi/cc.h>
#include <demi/homa.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>

#include <cerrno>
#include <type_traits>

static_assert(std::is_same_v<decltype(&demi_sgafree), int (*)(demi_sgarray *)>);
static_assert(std::is_same_v<demi_sgarray_t, demi_sgarray>);
static_assert(std::is_standard_layout_v<demi_qresult_t> && std::is_trivial_v<demi_qresult_t>);

int main()
{
    const demi_sgarray_t sga = demi_sgaalloc(1);
    demi_qresult_t result{};
    const timespec at_once{};
    demi_homa_msg_info info{};
    const bool right = demi_version() == DEMIHOMA_VERSION && sga.sga_buf == nullptr &&
                       sga.sga_numsegs == 0 && demi_wait(&result, 1, &at_once) == ENOSYS &&
                       demi_homa_info(&sga, &info) == ENOSYS &&
                       result.qr_opcode == DEMI_OPC_INVALID;
    return right ? 0 : 1;
}
