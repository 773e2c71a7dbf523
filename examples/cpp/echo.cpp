// Messages there and back in C++: arrays and queues free themselves, errors are exceptions.
//
//     echo server --config server.toml
//     echo client --config client.toml
//
// The client sends messages of 1 to 1,000,000 bytes and looks at every byte that comes back. The
// server, at 10.0.0.1:7, serves until SIGINT or SIGTERM ends its wait.
//
// Build: c++ echo.cpp $(pkg-config --cflags --libs demihoma) -o echo

#include "demi.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

namespace {

sockaddr_in address(const char *ip, std::uint16_t port)
{
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    addr.sin_port = htons(port);
    inet_pton(AF_INET, ip, &addr.sin_addr);
    return addr;
}

const sockaddr_in server_addr = address("10.0.0.1", 7);

void serve()
{
    demi::Queue queue;
    queue.bind(server_addr);
    std::cout << "ready" << std::endl;
    for (;;) {
        demi::Array message = queue.receive();
        try {
            demi::wait(queue.push(message, message.sender()));
        } catch (const std::system_error &error) {
            // One client's trouble must not end the service of the others.
            if (error.code().value() == EINTR)
                throw;
            std::cerr << "echo: " << error.what() << '\n';
        }
    }
}

bool is_right(demi::Array &array, std::size_t size)
{
    return array.size() == size &&
           std::all_of(array.begin(), array.end(), [&](std::uint8_t byte) {
               return byte == static_cast<std::uint8_t>(size);
           });
}

bool ask()
{
    demi::Queue queue;
    for (std::size_t size : {1, 100, 1424, 1425, 10000, 100000, 1000000}) {
        demi::Array message(size);
        std::fill(message.begin(), message.end(), static_cast<std::uint8_t>(size));
        const demi_qtoken_t push = queue.push(message, server_addr);
        demi::Array answer = queue.receive();
        demi::wait(push);
        if (!is_right(answer, size))
            return false;
        std::cout << size << " bytes there and back" << std::endl;
    }
    return true;
}

} // namespace

int main(int argc, char *argv[])
{
    const std::string role = argc > 1 ? argv[1] : "";
    demi_args args{};
    args.argc = argc;
    args.argv = argv;
    if (role != "server" && role != "client") {
        std::cerr << "echo: say server or client, and --config FILE\n";
        return EXIT_FAILURE;
    }
    if (demi_init(&args) != 0) // Has said what is wrong.
        return EXIT_FAILURE;
    std::signal(SIGINT, [](int) { demi_wake(); });
    std::signal(SIGTERM, [](int) { demi_wake(); });
    try {
        if (role == "server")
            serve();
        return ask() ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (const std::system_error &error) {
        if (error.code().value() == EINTR) // The queue has been closed on the way here.
            return EXIT_SUCCESS;
        std::cerr << "echo: " << error.what() << '\n';
        return EXIT_FAILURE;
    }
}
