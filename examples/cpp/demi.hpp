// The library as a C++ programmer may want it: arrays and queues that free themselves, and errors
// as std::system_error. For C++11 and later. Copy it into your program, and change it as you like.

#ifndef DEMI_HPP_IS_INCLUDED
#define DEMI_HPP_IS_INCLUDED

#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

namespace demi {

inline void check(const char *call, int error)
{
    if (error != 0)
        throw std::system_error(error, std::generic_category(), call);
}

/// A scatter-gather array that is ours until it goes out of scope.
class Array {
public:
    /// A buffer to write a message of `size` bytes into.
    explicit Array(std::size_t size) : sga_(demi_sgaalloc(size))
    {
        if (sga_.sga_numsegs == 0)
            check("demi_sgaalloc", ENOMEM);
    }

    /// What a pop gave: from now on it is freed here.
    explicit Array(const demi_sgarray_t &sga) noexcept : sga_(sga) {}

    Array(Array &&other) noexcept : sga_() { std::swap(sga_, other.sga_); }

    Array &operator=(Array &&other) noexcept
    {
        std::swap(sga_, other.sga_);
        return *this;
    }

    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    /// Messages on their way keep their bytes, so this may happen at any time.
    ~Array()
    {
        if (sga_.sga_numsegs != 0)
            demi_sgafree(&sga_);
    }

    std::uint8_t *begin() noexcept
    {
        return static_cast<std::uint8_t *>(sga_.sga_segs[0].sgaseg_buf);
    }

    std::uint8_t *end() noexcept { return begin() + size(); }
    std::size_t size() const noexcept { return sga_.sga_segs[0].sgaseg_len; }
    const demi_sgarray_t &get() const noexcept { return sga_; }

    /// Who sent it. A copy: members of packed structures are not aligned.
    sockaddr_in sender() const noexcept { return sga_.sga_addr; }

private:
    demi_sgarray_t sga_;
};

/// The result of an operation. One that failed is thrown as what it failed by.
inline demi_qresult_t wait(demi_qtoken_t token)
{
    demi_qresult_t result{};
    check("demi_wait", demi_wait(&result, token, nullptr));
    if (result.qr_opcode == DEMI_OPC_FAILED)
        check("the operation", static_cast<int>(result.qr_ret));
    return result;
}

/// A datagram socket, closed when it goes out of scope.
class Queue {
public:
    Queue() { check("demi_socket", demi_socket(&qd_, AF_INET, SOCK_DGRAM, 0)); }

    Queue(Queue &&other) noexcept : qd_(-1) { std::swap(qd_, other.qd_); }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    ~Queue()
    {
        if (qd_ >= 0)
            demi_close(qd_);
    }

    void bind(const sockaddr_in &addr)
    {
        check("demi_bind",
              demi_bind(qd_, reinterpret_cast<const sockaddr *>(&addr), sizeof addr));
    }

    demi_qtoken_t push(const Array &array, const sockaddr_in &to)
    {
        demi_qtoken_t token = 0;
        check("demi_pushto",
              demi_pushto(&token, qd_, &array.get(), reinterpret_cast<const sockaddr *>(&to),
                          sizeof to));
        return token;
    }

    demi_qtoken_t pop()
    {
        demi_qtoken_t token = 0;
        check("demi_pop", demi_pop(&token, qd_));
        return token;
    }

    /// The next message, whole.
    Array receive() { return Array(wait(pop()).qr_value.sga); }

private:
    int qd_ = -1;
};

} // namespace demi

#endif // DEMI_HPP_IS_INCLUDED
