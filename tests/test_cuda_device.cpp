// The runtime of devices with a fake driver and a fake compiler (fake_cuda): results, copies, memory, and failures of each driver call in
// turn.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compiler/fuse.h"
#include "cuda_emulation.h"
#include "cuda_programs.h"
#include "device_call.h"
#include "fake_cuda.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "runtime/cuda/device_plan.h"

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using runtime::cuda::Gpu;

namespace {

const FakeCuda& fake() { return fake_cuda(1); }

struct Case {
  ir::Graph graph;
  Arguments arguments;
  std::vector<Array> inputs;
  Case(const ir::Graph& of, std::uint64_t seed, bool strided = false)
      : graph(compiler::copy_results(of)), arguments(random_arguments(graph, seed, strided)), inputs(arrays_of(arguments)) {}
  std::vector<Array> run() const { return call_on_device(Gpu::get(), graph, inputs); }
  std::string difference(const std::vector<Array>& results) const { return difference_from_reference(graph, arguments, results); }
};

ir::Graph softmax() { return optimised("y = softmax(x, axis=-1); s = sum(x, axis=0)", {{"x", {40, 100}}}); }

}  // namespace

TEST_CASE("device: programs give the CPU's bits, copies are counted, and a second call allocates nothing", "[cuda]") {
  fake();
  for (const CudaProgram& program : cuda_programs()) {
    if (std::string_view(program.name) != "softmax" && std::string_view(program.name) != "affine, gradient" &&
        std::string_view(program.name) != "adam")
      continue;
    INFO(program.name);
    const Case c(graph_of(program, program.small), 5);
    const DeviceStats before = Gpu::get().stats();
    CHECK(c.difference(c.run()) == "");
    const DeviceStats first = Gpu::get().stats();
    std::int64_t in = 0, out = 0;
    for (const Array& a : c.inputs) in += a.bytes();
    for (const Array& a : c.run()) out += a.bytes();
    const DeviceStats second = Gpu::get().stats();
    CHECK(first.uploaded - before.uploaded == in);
    CHECK(first.downloaded - before.downloaded == out);
    CHECK(first.compiles == before.compiles + 1);
    CHECK(second.compiles == first.compiles);
    CHECK(second.held == first.held);
    CHECK(second.in_use == 0);
    CHECK(second.held == fake().held());
    CHECK(fake().entered() == 0);
  }
}

TEST_CASE("device: a kernel requests shared memory for eight long rows", "[cuda]") {
  fake();
  const ir::Graph graph = optimised("y = layer_norm(x, g, g, axis=-1, eps=1e-5); dx, dg = vjp(y, [x, g], d)",
                                    {{"x", {24, 1024}}, {"g", {1024}}, {"d", {24, 1024}}});
  const Case c(graph, 5);
  CudaEmulation emulation;
  CudaEmulation::Options options;
  options.target = Gpu::get().target();
  const std::size_t number = emulation.add(graph, c.arguments.views, options);
  CHECK(emulation.kernels(number)[0].shared_bytes > options.target.shared_bytes);
  CHECK(c.difference(c.run()) == "");
}

TEST_CASE("device: strided inputs, empty outputs, the same output twice", "[cuda]") {
  fake();
  const Case strided(optimised("y = x*2 + w", {{"x", {13, 7}}, {"w", {7}}}), 3, true);
  CHECK(strided.difference(strided.run()) == "");
  const Case empty(
      ir::parse_graph(
          "%0 = input x : f32[0, 5]\n%1 = neg %0 : f32[0, 5]\n%2 = input y : f32[3]\n%3 = neg %2 : f32[3]\nreturn a = %1, b = %3, c = %3"),
      3);
  CHECK(empty.difference(empty.run()) == "");
}

TEST_CASE("device: kernel parameters beyond the launch limit are in device memory", "[cuda]") {
  fake();
  constexpr int kInputs = 520;
  std::string text = "%0 = input x0 : f32[5]\n";
  for (int i = 1; i < kInputs; ++i) text += "%" + std::to_string(i) + " = input x" + std::to_string(i) + " : f32[5]\n";
  int id = kInputs;
  for (int i = 1; i < kInputs; ++i, ++id)
    text += "%" + std::to_string(id) + " = add %" + std::to_string(i == 1 ? 0 : id - 1) + ", %" + std::to_string(i) + " : f32[5]\n";
  const Case c(ir::parse_graph(text + "return y = %" + std::to_string(id - 1)), 9);
  CudaEmulation emulation;
  emulation.add(c.graph, c.arguments.views);
  const bool far = emulation.text().find("KERNEL_FAR(k0") != std::string::npos;
  CHECK(far);
  CHECK(c.difference(c.run()) == "");
}

TEST_CASE("device: each failed driver call is a one-line error, and nothing leaks", "[cuda]") {
  fake();
  const Case c(softmax(), 1);
  CHECK(c.difference(c.run()) == "");
  struct Fault {
    int code;
    const char* says;
  };
  for (const auto [code, says] :
       {Fault{1, "nvidia-smi"}, Fault{2, "Free arrays"}, Fault{719, "can no longer use the device"}, Fault{12345, "unknown error"}})
    for (const bool always : {false, true}) {
      int failures = 0;
      for (std::int64_t k = 0;; ++k) {
        INFO("code " << code << (always ? " from call " : " at call ") << k);
        fake().fail(k, code, always);
        std::string said;
        try {
          const std::vector<Array> results = c.run();
          const bool reached = always ? false : fake().failed();
          fake().works();
          CHECK(c.difference(results) == "");
          if (!reached) break;  // the run makes fewer driver calls
        } catch (const Error& error) { said = error.what(); }
        fake().works();
        if (!said.empty()) {
          ++failures;
          CHECK_THAT(said, Catch::Matchers::StartsWith("cuda: ") && Contains(" failed: ") && Contains("). ") && Contains(says));
          CHECK(said.find('\n') == std::string::npos);
        }
        CHECK(Gpu::get().stats().in_use == 0);
        CHECK(Gpu::get().stats().held == fake().held());
        CHECK(fake().entered() == 0);
      }
      CHECK(failures > 5);
    }
  CHECK(c.difference(c.run()) == "");
  Gpu::get().trim();
  CHECK(fake().held() == 0);
}

TEST_CASE("device: errors with a remedy name it; after a sticky error the CPU still works", "[cuda]") {
  fake();
  const Case c(softmax(), 1);
  CHECK(c.difference(c.run()) == "");
  struct Cause {
    int code;
    const char* says;
  };
  for (const auto [code, says] : {Cause{214, "ECC"}, Cause{802, "nvidia-fabricmanager"}, Cause{803, "Restart the machine"},
                                  Cause{804, "CUDA compatibility package"}, Cause{906, "End the capture"}, Cause{999, "nvidia_uvm"}}) {
    fake().fail(0, code);
    CHECK_THROWS_WITH(c.run(), Contains(says));
    fake().works();
  }
  fake().fail(3, 700, true);
  for (int i = 0; i < 3; ++i)
    CHECK_THROWS_WITH(c.run(), Contains("the process can no longer use the device") && Contains("the CPU keeps working"));
  CHECK(compile([](Tensor x) { return x * 2.0; })(Array::from({1.5f}, {1})).at<float>({0}) == 3.0f);
  fake().works();
  CHECK(c.difference(c.run()) == "");
}

TEST_CASE("device: exhausted memory is a MemoryError with its size, after the pool was freed", "[cuda]") {
  fake();
  Gpu::get().trim();
  const Case small(optimised("y = x*2", {{"x", {1000}}}), 1), large(optimised("y = x*2", {{"x", {5000}}}), 1);
  fake().limit(50000);
  CHECK(small.difference(small.run()) == "");
  CHECK(fake().held() > 0);
  CHECK(large.difference(large.run()) == "");  // the pool's blocks are too small and use up the limit
  fake().limit(30000);
  Gpu::get().trim();
  CHECK_THROWS_AS(large.run(), MemoryError);
  CHECK_THROWS_WITH(
      large.run(),
      Contains("allocating 20480 bytes on a device that is none failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory). Free arrays"));
  CHECK(small.difference(small.run()) == "");
  fake().limit(std::int64_t{1} << 40);
  CHECK_THROWS_WITH(Gpu::get(7), Contains("device 7 does not exist; the driver shows 1"));
}
