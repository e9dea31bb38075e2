// What happens on a device when ranks do not do the same.
#include "base/error.hpp"
#include "runtime/device/cuda/inproc.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/patience.hpp"

#include <thread>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

/// Two ranks; `body` gets a communicator, the op to be in, and memory.
using Body = std::function<void(Transport&, cuda::DeviceCommunicator&, const cuda::OpOnStream&,
                                std::span<std::byte>)>;
void run(Seconds timeout, const Body& body) {
  cuda::InprocWorld world(2);
  const RankBody rank = [&](Transport& transport) {
    cuda::use_device(0);
    const auto memory = std::make_shared<cuda::DeviceBuffer>(1024);
    world.keep(memory);
    const cuda::Stream stream(0);
    cuda::InprocCommunicator communicator(world, transport, timeout);
    body(transport, communicator,
         {.stream = stream.get(), .stream_id = StreamId(0), .op = 7, .name = "exchange"},
         {memory->data(), memory->size()});
    stream.synchronize();
  };
  transports::by_name("inproc", "test").run(2, rank, {.deadlines = {.timeout = timeout}});
}

ExchangeParts with_other(Rank self, std::span<std::byte> memory, std::size_t send) {
  const Rank other(1 - self.value);
  return {.to = other, .from = other, .send = {memory.first(send)}, .receive = {memory.last(256)}};
}

}  // namespace

TEST_CASE("messages of different sizes end the run with both sizes") {
  SPP_NEED_DEVICE();
  const std::string message = message_of<BackendError>([] {
    run(patient(Seconds(20)), [](Transport& t, cuda::DeviceCommunicator& c,
                                 const cuda::OpOnStream& at, std::span<std::byte> memory) {
      c.exchange(at, with_other(t.rank(), memory, t.rank().value == 0 ? 256 : 128));
    });
  });
  INFO(message);
  CHECK(message.find("exchange failed on rank 0: 128 bytes from rank 1 in op 7, but 256 were "
                     "expected") != std::string::npos);
}

TEST_CASE("a rank that does not come ends the run, and the message says who waited for whom") {
  SPP_NEED_DEVICE();
  const std::string message = message_of<BackendError>([] {
    run(Seconds(0.3), [](Transport& t, cuda::DeviceCommunicator& c, const cuda::OpOnStream& at,
                         std::span<std::byte> memory) {
      if (t.rank().value == 0) {
        c.exchange(at, with_other(t.rank(), memory, 256));
      } else {
        std::this_thread::sleep_for(std::chrono::seconds(1));
      }
    });
  });
  INFO(message);
  CHECK(message.starts_with("exchange failed on rank 0: nothing came for"));
  CHECK(message.find("from rank 1 in op 7") != std::string::npos);
}

TEST_CASE("a rank that works for longer than the time-out, and says so, is waited for") {
  SPP_NEED_DEVICE();
  using Clock = std::chrono::steady_clock;
  const Seconds timeout = patient(Seconds(2));
  REQUIRE_NOTHROW(run(timeout, [&](Transport& t, cuda::DeviceCommunicator& c,
                                   const cuda::OpOnStream& at, std::span<std::byte> memory) {
    const auto start = Clock::now();
    while (t.rank().value == 1 && Clock::now() - start < 2 * timeout) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      t.working();
    }
    c.exchange(at, with_other(t.rank(), memory, 256));
  }));
}

TEST_CASE("a rank that throws ends the run with its own message") {
  SPP_NEED_DEVICE();
  const std::string message = message_of<BackendError>([] {
    run(patient(Seconds(20)), [](Transport& t, cuda::DeviceCommunicator& c,
                                 const cuda::OpOnStream& at, std::span<std::byte> memory) {
      if (t.rank().value == 1) {
        throw BackendError("kernel", "no more", 1);
      }
      c.exchange(at, with_other(t.rank(), memory, 256));
    });
  });
  CHECK(message == "kernel failed on rank 1: no more");
}
