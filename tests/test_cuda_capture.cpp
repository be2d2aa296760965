// Calls on streams that the caller captures into CUDA graphs, with the fake driver (fake_cuda). It runs launches of graphs as late as
// possible, and refuses during captures what CUDA refuses.
#include <catch2/catch.hpp>

#include <optional>
#include <thread>
#include <vector>

#include "arrays.h"
#include "compiler/cuda/emit.h"
#include "fake_cuda.h"
#include "onepass/onepass.h"
#include "runtime/background.h"
#include "runtime/cuda/device.h"

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

const Device gpu = Device::cuda(0), other = Device::cuda(1);

// A stream of the caller, whose functions of the driver need a context.
class Stream {
 public:
  Stream() {
    synchronize(gpu);  // opens the device
    REQUIRE(fake_cuda().function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context_, 0) == 0);
    REQUIRE(fake_cuda().function<int(void*)>("cuCtxPushCurrent_v2")(context_) == 0);
  }
  ~Stream() {
    fake_cuda().function<int(void*)>("cuStreamDestroy_v2")(handle);
    void* left = nullptr;
    fake_cuda().function<int(void**)>("cuCtxPopCurrent_v2")(&left);
  }
  Stream(const Stream&) = delete;
  void* const handle = stream_of_ours();

 private:
  void* context_ = nullptr;
};

// The executable graph of the calls of `calls`, which are captured on the stream. It is empty if the capture was invalid.
class CallerGraph {
 public:
  template <class F> CallerGraph(const Stream& on, F&& calls, int mode = 0) : stream_(on.handle) {
    REQUIRE(fake_cuda().function<int(void*, int)>("cuStreamBeginCapture_v2")(stream_, mode) == 0);
    {
      const StreamScope scope(gpu, stream_);
      calls();
    }
    void* graph = nullptr;
    if (fake_cuda().function<int(void*, void**)>("cuStreamEndCapture")(stream_, &graph) != 0) return;
    REQUIRE(fake_cuda().function<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&handle_, graph, 0) == 0);
    REQUIRE(fake_cuda().function<int(void*)>("cuGraphDestroy")(graph) == 0);
  }
  ~CallerGraph() {
    if (handle_) fake_cuda().function<int(void*)>("cuGraphExecDestroy")(handle_);
  }
  CallerGraph(const CallerGraph&) = delete;
  void launch() const { REQUIRE(fake_cuda().function<int(void*, void*)>("cuGraphLaunch")(handle_, stream_) == 0); }
  bool is_valid() const { return handle_ != nullptr; }

 private:
  void* stream_;
  void* handle_ = nullptr;
};

void finish() { fake_cuda().function<int()>("fake_cuda_finish")(); }

auto affine() {
  return compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; });
}
auto several() {  // two kernels, with intermediates
  return compile([](Tensor x) { return sum(softmax(x, 0), 0) * sum(x); });
}
auto same() {
  return compile([](Tensor x) { return x; });
}

}  // namespace

TEST_CASE("captured calls run at each launch of the graph, with the elements of that time", "[cuda]") {
  fake_cuda();
  const auto f = several();
  const auto g = affine();
  const auto set = same();
  Array x = ramp({70, 96}, 0.001).to(gpu), into = Array::zeros({96}, f32, gpu), y, z;
  const Array w = ramp({96}, 0.5), there = w.to(gpu);
  const Stream stream;
  const std::int64_t ran = fake_cuda().launched();
  const CallerGraph graph(stream, [&] {
    y = f(x);
    z = g(y, there, 2.0);
    g.into(into)(z, y, there);
  });
  REQUIRE(graph.is_valid());
  CHECK(fake_cuda().launched() == ran);
  const std::int64_t launches = device_stats(gpu).launches;
  for (const double step : {0.25, 0.125}) {
    const Array values = ramp({70, 96}, step), expected = f(values), second = g(expected, w, 2.0);
    const StreamScope scope(gpu, stream.handle);  // orders the copies and the launches
    set.into(x)(values);
    graph.launch();
    CHECK(same_bits(y.to(Device::cpu()), expected));
    CHECK(same_bits(z.to(Device::cpu()), second));
    CHECK(same_bits(into.to(Device::cpu()), g(second, expected, w)));
  }
  CHECK(device_stats(gpu).launches == launches + 2);  // of `set`
}

TEST_CASE("memory of captured calls stays with the graph, and returns after it", "[cuda]") {
  fake_cuda();
  const auto f = several();
  const auto g = affine();
  const Array values = ramp({70, 96}, 0.001), w = ramp({96}, 0.5), expected = g(f(values), w, w);
  static_cast<void>(g(f(values.to(gpu)), w.to(gpu), w));
  const Stream stream;
  synchronize(gpu), trim_memory(gpu);
  const std::int64_t before = device_stats(gpu).in_use;
  {
    Array out = Array::zeros({96}, f32, gpu), kept;
    {
      std::int64_t after_two = 0;
      Array x = values.to(gpu), there = w.to(gpu);
      std::optional<CallerGraph> graph(std::in_place, stream, [&] {
        Array y = f(x);
        y = f(x);
        after_two = device_stats(gpu).in_use;
        for (int i = 0; i < 50; ++i) y = f(x);
        CHECK(device_stats(gpu).in_use == after_two);  // the memory of freed results and intermediates is reused
        g.into(out)(y, there, there);
        kept = g(y, there, there);
      });
      REQUIRE(graph->is_valid());
      x = there = Array();
      CHECK(device_stats(gpu).in_use >= after_two);
      trim_memory(gpu);
      std::vector<Array> noise;
      for (int i = 0; i < 100; ++i) noise.push_back(Array::zeros({70, 96}, f32, gpu));
      const StreamScope scope(gpu, stream.handle);
      for (int i = 0; i < 2; ++i) {
        graph->launch();
        CHECK(same_bits(out.to(Device::cpu()), expected));
        CHECK(same_bits(kept.to(Device::cpu()), expected));
      }
      graph->launch();
      graph.reset();  // while its last launch is pending
      noise.clear();
      CHECK(device_stats(gpu).in_use > before + 2 * 512);
    }
    finish();
    CHECK(same_bits(kept.to(Device::cpu()), expected));  // a result outlives its graph
    CHECK(device_stats(gpu).in_use == before + 2 * 512);
  }
  CHECK(device_stats(gpu).in_use == before);
  CHECK(fake_cuda().unloaded_early() == 0);
}

TEST_CASE("programs of captured calls stay loaded with the graph", "[cuda]") {
  fake_cuda();
  using runtime::cuda::Gpu;
  Gpu& device = Gpu::get(0);
  const Stream stream;
  runtime::background::wait();
  device.forget_programs();
  const std::int64_t loaded = fake_cuda().loaded();
  {
    const CallerGraph graph(stream, [&] {
      const Gpu::ModulePointer module = device.load(compiler::cuda::DeviceProgram().text() + "// a program\n").module;
      Gpu::Turn turn(device);
      turn.uses(module), turn.uses(module);
    });
    REQUIRE(graph.is_valid());
    device.forget_programs();
    CHECK(fake_cuda().loaded() == loaded + 1);
    graph.launch();
  }
  device.forget_programs();
  CHECK(fake_cuda().loaded() == loaded + 1);  // the launch is pending
  finish();
  device.forget_programs();
  CHECK(fake_cuda().loaded() == loaded);
  CHECK(fake_cuda().unloaded_early() == 0);
}

TEST_CASE("captured calls with more arrays than launch parameters", "[cuda]") {
  fake_cuda();
  const auto f = compile([](const std::vector<Tensor>& xs) { return stack(xs, 0) * 2.0; });
  std::vector<Array> xs, there;
  for (int i = 0; i < 600; ++i) xs.push_back(ramp({16}, 0.25 + i)), there.push_back(xs.back().to(gpu));
  const Stream stream;
  Array y;
  const CallerGraph graph(stream, [&] { y = f(there); });
  REQUIRE(graph.is_valid());
  std::vector<Array> noise;
  for (int i = 0; i < 100; ++i) noise.push_back(Array::zeros({1000}, f32, gpu));
  graph.launch();
  const StreamScope scope(gpu, stream.handle);  // runs the work of this stream alone
  CHECK(same_bits(y.to(Device::cpu()), f(xs)));
}

TEST_CASE("each launch of a graph reports its bad index", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x, Tensor i) { return take(x, i, 0); });
  const auto set = same();
  const Array x = ramp({9, 6}, 0.25).to(gpu), good = Array::from({3, -1, 0, 8}, {4}), bad = Array::from({3, 9, 0, 8}, {4});
  const Stream stream;
  const std::string error = "take: an earlier call on cuda:0 had the index 9, which is out of range: axis 0 has extent 9. The results of";
  for (const bool is_kept : {true, false}) {  // the function
    Array i = good.to(gpu), y;
    std::optional<CallerGraph> graph;
    if (is_kept) {
      graph.emplace(stream, [&] { y = f(x, i); });
    } else {
      const auto other_f = compile([](Tensor x, Tensor i) { return take(x, i, 0); });
      graph.emplace(stream, [&] { y = other_f(x, i); });
    }
    REQUIRE(graph->is_valid());
    for (int round = 0; round < 3; ++round) {
      set.into(i)(bad);
      synchronize(gpu);
      graph->launch();
      CHECK_THROWS_WITH(synchronize(gpu), StartsWith(error));
      CHECK_NOTHROW(synchronize(gpu));  // once
      set.into(i)(good);
      synchronize(gpu);
      graph->launch();
      CHECK_NOTHROW(synchronize(gpu));
      CHECK(same_bits(y.to(Device::cpu()), f(x.to(Device::cpu()), good)));
    }
    set.into(i)(bad);
    synchronize(gpu);
    graph->launch();
    graph.reset();
    CHECK_THROWS_WITH(synchronize(gpu), StartsWith(error));  // the report outlives the graph
    CHECK_NOTHROW(f(x, good.to(gpu)));
  }
}

TEST_CASE("captured calls use what other streams have computed, and the calling thread waits for it", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), expected = f(f(x, x, x), x, x);
  const Array there = x.to(gpu);
  const Array before = f(there, there, there);  // pending on the device's own stream
  const Stream one, two;
  Array also;
  {
    const StreamScope scope(gpu, two.handle);
    also = f(there, there, there);
  }
  Array y, z;
  const CallerGraph graph(one, [&] { y = f(before, there, there), z = f(also, there, there); });
  REQUIRE(graph.is_valid());
  graph.launch();
  CHECK(same_bits(y.to(Device::cpu()), expected));
  CHECK(same_bits(z.to(Device::cpu()), expected));
}

TEST_CASE("several streams may be in one capture", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), expected = f(f(f(x, x, x), x, x), x, x), there = x.to(gpu);
  const Stream one, two;
  Array y;
  const CallerGraph graph(one, [&] {
    const Array a = f(there, there, there);
    Array b;
    {
      const StreamScope scope(gpu, two.handle);
      void* event = nullptr;  // the other stream joins the capture, as the caller says
      REQUIRE(fake_cuda().function<int(void**, unsigned)>("cuEventCreate")(&event, 0) == 0);
      REQUIRE(fake_cuda().function<int(void*, void*)>("cuEventRecord")(event, one.handle) == 0);
      REQUIRE(fake_cuda().function<int(void*, void*, unsigned)>("cuStreamWaitEvent")(two.handle, event, 0) == 0);
      REQUIRE(fake_cuda().function<int(void*)>("cuEventDestroy_v2")(event) == 0);
      b = f(a, there, there);
    }
    y = f(b, there, there);
  });
  REQUIRE(graph.is_valid());
  graph.launch();
  CHECK(same_bits(y.to(Device::cpu()), expected));
}

TEST_CASE("what a graph cannot contain is an error, and the capture goes on", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), expected = f(x, x, x), there = x.to(gpu), elsewhere = x.to(other);
  Array y, host = Array::zeros({64}, f32);
  Options checks;
  checks.check_nan = true;
  const auto checked = compile([](Tensor x) { return x * 2.0; }, checks);
  static_cast<void>(checked(there));
  const Stream stream;
  const std::string is_captured = "cuda: a stream on a device that is none is being captured into a CUDA graph. ";
  const CallerGraph graph(stream, [&] {
    CHECK_THROWS_WITH(f(there, x, there), StartsWith(is_captured) && Contains("Move the array to the device"));
    CHECK_THROWS_WITH(x.to(gpu), StartsWith(is_captured) && Contains("Move the array to the device"));
    CHECK_THROWS_WITH(f.into(host)(there, there, there), StartsWith(is_captured) && Contains("Copy results to the CPU after that"));
    CHECK_THROWS_WITH(checked(there), StartsWith(is_captured) && Contains("without check_nan"));
    CHECK_THROWS_WITH(elsewhere.to(gpu), StartsWith(is_captured));
    CHECK_THROWS_WITH(there.to(other), StartsWith(is_captured));
    y = f(there, there, there);
    CHECK_THROWS_WITH(y.to(Device::cpu()), StartsWith(is_captured) && Contains("Copy results to the CPU after that"));
    std::thread([&] { CHECK_THROWS_WITH(y.to(Device::cpu()), StartsWith(is_captured) && Contains("End the capture first")); }).join();
    CHECK(same_bits(y.copy().device() == gpu ? x : host, x));  // a copy on the device is part of the graph
  });
  REQUIRE(graph.is_valid());
  graph.launch();
  CHECK(same_bits(y.to(Device::cpu()), expected));
}

TEST_CASE("other threads work on the device while a stream is captured, and the capture stays valid", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), expected = f(x, x, x), there = x.to(gpu);
  const Stream stream;
  Array y;
  for (const int mode : {0, 1, 2}) {
    const CallerGraph graph(
        stream,
        [&] {
          y = f(there, there, there);
          std::thread([&] {
            CHECK(same_bits(f(there, there, there).to(Device::cpu()), expected));
            const auto g = compile([](Tensor x, Tensor i) { return take(exp(x * 1.5), i, 0) + sum(x); });  // loads a program
            const Array mine = x.to(gpu), i = Array::from({3, -1, 0, 8}, {4}).to(gpu);
            for (int k = 0; k < 12; ++k)
              CHECK(same_bits(g(mine, i).to(Device::cpu()), g(x, i.to(Device::cpu()))));  // trials, a graph, queries of events
            std::vector<Array> many;
            for (int k = 0; k < 10; ++k) many.push_back(Array::zeros({1 << 20}, f32, gpu));
            many.clear();
            trim_memory(gpu);
            runtime::background::wait();
            runtime::cuda::Gpu::get(0).forget_programs();
          }).join();
          y = f(there, there, there);
        },
        mode);
    REQUIRE(graph.is_valid());
    graph.launch();
    CHECK(same_bits(y.to(Device::cpu()), expected));
  }
}

TEST_CASE("an invalid capture is an error of one sentence, and the stream works after it", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), expected = f(x, x, x), there = x.to(gpu);
  static_cast<void>(f(there, there, there));
  const Stream stream;
  const CallerGraph graph(stream, [&] {
    CHECK(fake_cuda().function<int(void*)>("cuStreamSynchronize")(stream.handle) != 0);
    CHECK_THROWS_WITH(f(there, there, there),
                      StartsWith("cuda: an earlier error made the capture of a stream on") && Contains("End the capture"));
  });
  CHECK(!graph.is_valid());
  const StreamScope scope(gpu, stream.handle);
  CHECK(same_bits(f(there, there, there).to(Device::cpu()), expected));
}

TEST_CASE("captures: any failed driver call is an error, and nothing leaks", "[cuda]") {
  fake_cuda();
  const auto f = several();
  const auto taken = compile([](Tensor x, Tensor i) { return take(x, i, 0); });
  const Array x = ramp({70, 96}, 0.001), i = Array::from({3, -1, 0, 8}, {4}), expected = f(x), rows = taken(x, i);
  const Array there = x.to(gpu), indices = i.to(gpu);
  const Stream stream;
  const auto round = [&](bool is_expected) {
    Array y, z;
    std::string said;
    {
      const CallerGraph graph(stream, [&] {
        try {
          y = f(there), z = taken(there, indices);
        } catch (const Error& error) { said = error.what(); }
        fake_cuda().works();
      });
      CHECK((said.empty() || said.starts_with("cuda: ")));
      CHECK((!is_expected || said.empty()));
      if (said.empty()) {
        REQUIRE(graph.is_valid());
        graph.launch();
        CHECK(same_bits(y.to(Device::cpu()), expected));
        CHECK(same_bits(z.to(Device::cpu()), rows));
      }
    }
    finish();
    return said.empty();
  };
  for (int k = 0; k < 2; ++k) round(true);
  const std::int64_t live = fake_cuda().live(), in_use = device_stats(gpu).in_use;
  int failures = 0;
  for (std::int64_t n = 1;; ++n) {  // call 0 begins the capture
    INFO("call " << n);
    fake_cuda().fail(n, n % 2 ? 2 : 719);
    const bool worked = round(false);
    CHECK(fake_cuda().entered() == 1);      // of the test's stream
    CHECK(fake_cuda().live() <= live + 1);  // the stream of a later capture may have an event
    CHECK(device_stats(gpu).in_use == in_use);
    if (worked && n > 60) break;
    failures += !worked;
    REQUIRE(n < 500);
  }
  CHECK(failures > 10);
  round(true);
}
