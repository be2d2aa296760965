// Arrays on devices and calls with them, through the public interface only. The fake driver (fake_cuda) runs all work as late as allowed,
// so wrongly ordered work reads memory that is not ready.
#include <catch2/catch.hpp>

#include <thread>

#include "arrays.h"
#include "compiler/cuda/emit.h"
#include "fake_cuda.h"
#include "onepass/onepass.h"
#include "runtime/background.h"
#include "runtime/cuda/device.h"
#include "runtime/dlpack.h"

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

const Device gpu = Device::cuda(0), other = Device::cuda(1);

auto affine() {
  return compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; });
}
auto softmax_of_sum() {
  return compile([](Tensor x) { return std::tuple{softmax(x, -1), sum(x, 0)}; });
}

void end(void* stream) { fake_cuda().function<int(void*)>("cuStreamDestroy_v2")(stream); }

}  // namespace

// This test must be the first: earlier tests leave memory whose streams hide the fault.
TEST_CASE("sources of pending copies are not reused before the copies", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), w = ramp({64}, 0.5), there = x.to(gpu);
  f(there, w, there);
  synchronize(gpu);
  void* const a = stream_of_ours();
  Array y;
  {
    const StreamScope scope(gpu, a);
    y = f(there, w, there);
  }
  const Array longer = ramp({1000}, 0.75);
  CHECK(same_bits(longer.to(gpu).to(Device::cpu()), longer));  // on the default stream, whose earlier work is complete
  const Array part = ramp({1 << 20}, 0.125);                   // uses a part of pinned memory
  for (int i = 0; i < 16; ++i) CHECK(part.to(gpu).slice(0, 0, 1).to(Device::cpu()).at<float>({0}) == part.at<float>({0}));
  CHECK(same_bits(y.to(Device::cpu()), affine()(x, w, x)));
  end(a);
}

TEST_CASE("arrays on a device: copies in both directions, views, and access errors on the CPU", "[cuda]") {
  fake_cuda();
  const Array x = ramp({5, 7}, 0.25);
  const Array there = x.to(gpu);
  CHECK(there.device() == gpu);
  CHECK(x.device() == Device::cpu());
  CHECK(there.to(gpu).data() == there.data());
  CHECK(same_bits(there.to(Device::cpu()), x));
  CHECK(same_bits(there.transpose().to(Device::cpu()), x.transpose().copy()));
  CHECK(same_bits(there.slice(0, 1, 4).slice(1, 5, 0, -2).copy().to(Device::cpu()), x.slice(0, 1, 4).slice(1, 5, 0, -2).copy()));
  CHECK(same_bits(there.reshape({7, 5}).to(Device::cpu()), x.reshape({7, 5})));
  CHECK(same_bits(there.transpose().reshape({35}).to(Device::cpu()), x.transpose().reshape({35})));
  CHECK(there.transpose().contiguous().device() == gpu);
  CHECK(same_bits(Array::zeros({3, 2}, i64, gpu).to(Device::cpu()), Array::zeros({3, 2}, i64)));
  CHECK(Array::zeros({0, 2}, f32, gpu).to(Device::cpu()).size() == 0);
  CHECK(same_bits(x.to(other).to(gpu).to(Device::cpu()), x));
  const std::string says = "f32[5, 7] is on cuda:0, so the CPU cannot read it. Copy it with `to(Device::cpu())`.";
  CHECK_THROWS_WITH(there.at<float>({0, 0}), Contains("at: the array " + says));
  CHECK_THROWS_WITH(there.to_vector<float>(), Contains("to_vector: the array " + says));
  CHECK_THROWS_WITH(there.span<float>(), Contains("span: the array " + says));
  CHECK_THROWS_WITH(x.to(Device::cuda(9)), Contains("cuda: device 9 does not exist; the driver shows 2"));
  CHECK_THROWS_WITH(Device::cuda(-1), Contains("-1 is not between 0 and 254"));
  CHECK(cuda_device_count() == 2);
}

TEST_CASE("arrays on a device: large copies are split into parts", "[cuda]") {
  fake_cuda();
  const Array x = ramp({3'000'001}, 0.125);  // three parts of pinned memory; the last part is short
  const DeviceStats before = device_stats(gpu);
  CHECK(same_bits(x.to(gpu).to(Device::cpu()), x));
  CHECK(device_stats(gpu).uploaded - before.uploaded == x.bytes());
  CHECK(device_stats(gpu).downloaded - before.downloaded == x.bytes());
}

TEST_CASE("calls run on the device of their arrays, and copy only other arrays", "[cuda]") {
  fake_cuda();
  const Array x = ramp({6, 40}, 0.25), w = ramp({40}, 0.5), b = ramp({40}, 0.125);
  const auto f = affine();
  const Array expected = affine()(x, w, b);
  const Array xd = x.to(gpu), wd = w.to(gpu), bd = b.to(gpu);
  const DeviceStats before = device_stats(gpu);
  const Array y = f(xd, wd, bd);
  CHECK(y.device() == gpu);
  CHECK(device_stats(gpu).uploaded == before.uploaded);
  CHECK(f.stats().bytes_uploaded == 0);
  CHECK(same_bits(y.to(Device::cpu()), expected));
  CHECK(f.stats().bytes_downloaded == 0);  // the call copied nothing
  const Array y2 = f(xd, w, bd);
  CHECK(f.stats().bytes_uploaded == w.bytes());
  CHECK(same_bits(y2.to(Device::cpu()), expected));
  CHECK(same_bits(f(x, w, b), expected));  // on the CPU, as usual
  CHECK(same_bits(f(xd, wd, 2.0).to(Device::cpu()), affine()(x, w, 2.0)));
  CHECK(same_bits(f(xd, wd, 3.0).to(Device::cpu()), affine()(x, w, 3.0)));
  const auto less =
      compile([](Tensor x, Tensor c) { return x * 2 - c; });  // becomes an addition; the sign changes when kernel parameters are filled
  for (const double c : {1.5, 2.5}) CHECK(same_bits(less(xd, c).to(Device::cpu()), less(x, c)));
  CHECK_THROWS_WITH(f(xd, w.to(other), bd), Contains("a call runs on one device") && Contains("cuda:0") && Contains("cuda:1"));
  CHECK(same_bits(f(x.to(other), w, b).to(Device::cpu()), expected));
  CHECK_THAT(f.explain(), Contains("cuda:1"));
  CHECK(f.stats().bytes_read > 0);
}

TEST_CASE("calls on a device write into their destinations", "[cuda]") {
  fake_cuda();
  const Array x = ramp({6, 40}, 0.25), w = ramp({40}, 0.5), b = ramp({40}, 0.125), expected = affine()(x, w, b);
  const auto f = affine();
  const Array xd = x.to(gpu), wd = w.to(gpu), bd = b.to(gpu);
  Array y = Array::zeros({6, 40}, f32, gpu);
  f.into(y)(xd, wd, bd);
  CHECK(same_bits(y.to(Device::cpu()), expected));
  Array host = Array::zeros({6, 40}, f32);
  f.into(host)(xd, wd, bd);
  CHECK(same_bits(host, expected));
  CHECK(f.stats().bytes_downloaded == host.bytes());
  Array wide = Array::zeros({6, 80}, f32), narrow = wide.slice(1, 0, 80, 2);
  f.into(narrow)(xd, wd, bd);
  CHECK(same_bits(narrow.copy(), expected));
  CHECK(wide.at<float>({0, 1}) == 0);
  Array wide_there = Array::zeros({6, 80}, f32, gpu), narrow_there = wide_there.slice(1, 1, 80, 2);
  f.into(narrow_there)(xd, wd, bd);
  CHECK(same_bits(narrow_there.to(Device::cpu()), expected));
  CHECK(wide_there.to(Device::cpu()).at<float>({0, 0}) == 0);
  Array from_cpu = Array::zeros({6, 40}, f32, gpu);
  f.into(from_cpu)(x, w, b);  // the destination's device
  CHECK(same_bits(from_cpu.to(Device::cpu()), expected));
  const std::int64_t allocated = f.stats().bytes_allocated;
  Array over = xd.copy();
  f.into(over)(over, wd, bd);
  CHECK(same_bits(over.to(Device::cpu()), expected));
  CHECK(f.stats().bytes_allocated == allocated);  // in place
  const auto flipped = compile([](Tensor x) { return flip(x, 0) + 1.0; });
  Array v = ramp({1000}, 0.25).to(gpu);
  const Array reversed = compile([](Tensor x) { return flip(x, 0) + 1.0; })(ramp({1000}, 0.25));
  flipped.into(v)(v);
  CHECK(same_bits(v.to(Device::cpu()), reversed));
  CHECK(flipped.stats().bytes_allocated == v.bytes());  // a temporary
  const auto two = softmax_of_sum();
  Array p = Array::empty({6, 40}, f32, gpu), overlapping = p.reshape({240}).slice(0, 0, 40);
  CHECK_THROWS_WITH(two.into(p, overlapping)(xd), Contains("overlap"));
}

TEST_CASE("bound calls on a device read the current elements of their arrays", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  Array x = ramp({100}, 0.25).to(gpu), w = ramp({100}, 0.5).to(gpu), y = Array::empty({100}, f32, gpu);
  const auto call = f.bind(y, x, w, 1.5);
  for (const double step : {0.25, 0.75, 0.5}) {
    const Array now = ramp({100}, step);
    compile([](Tensor a) { return a * 1.0; }).into(x)(now.to(gpu));
    call();
    CHECK(same_bits(y.to(Device::cpu()), affine()(now, ramp({100}, 0.5), 1.5)));
  }
}

TEST_CASE("a call on a device does not wait, and its kernels run when results are read", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25).to(gpu);
  f(x, x, x);
  synchronize(gpu);
  const std::int64_t ran = fake_cuda().launched();
  Array y = f(x, x, x);
  for (int i = 0; i < 5; ++i) y = f(y, x, x);
  CHECK(fake_cuda().launched() == ran);
  CHECK(fake_cuda().waiting() > 0);
  synchronize(gpu);
  CHECK(fake_cuda().launched() == ran + 6);
  CHECK(fake_cuda().waiting() == 0);
}

TEST_CASE("work runs on the caller's streams, and arrays may move between streams", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), expected = affine()(affine()(x, x, x), x, x);
  f(x.to(gpu), x, x);
  void *const a = stream_of_ours(), *const b = stream_of_ours();
  for (int round = 0; round < 3; ++round) {
    Array y, z;
    {
      const StreamScope scope(gpu, a);
      const Array there = x.to(gpu);
      y = f(there, there, there);
      {
        const StreamScope inner(gpu, b);
        z = f(y, there, there);  // after the work on `a`
      }
      y = Array();  // the memory of y may be reused after the work that reads y
      const Array noise = Array::zeros({64}, f32, gpu);
    }
    CHECK(same_bits(z.to(Device::cpu()), expected));
  }
  {
    const StreamScope scope(gpu, a);
    synchronize(gpu);
    const Array y = f(x.to(gpu), x, x);
    CHECK(fake_cuda().waiting() > 0);
    REQUIRE(fake_cuda().function<int(void*)>("cuStreamSynchronize")(a) == 0);  // the caller waits without onepass
    CHECK(fake_cuda().waiting() == 0);
  }
  end(a), end(b);
  CHECK(same_bits(f(x.to(gpu), x, x).to(Device::cpu()), affine()(x, x, x)));
  CHECK_THROWS_WITH(StreamScope(Device::cpu(), nullptr), Contains("the CPU has no streams"));
}

TEST_CASE("memory moves between streams after its pending uses", "[cuda]") {
  fake_cuda();
  trim_memory(gpu);
  const auto f = affine();
  const Array x = ramp({1000}, 0.25), expected = affine()(x, x, x);
  const Array there = x.to(gpu);
  f(there, there, there);
  void* const a = stream_of_ours();
  const Array result = [&] {
    Array y;
    {
      const StreamScope scope(gpu, a);
      const Array copy = there.copy();
      y = f(copy, copy, copy);  // still pending when `copy` ends
    }
    const Array reused = Array::zeros({1000}, f32, gpu);  // on the default stream, in the memory of `copy`
    CHECK(same_bits(reused.to(Device::cpu()), Array::zeros({1000}, f32)));
    return y;
  }();
  CHECK(same_bits(result.to(Device::cpu()), expected));
  end(a);
}

TEST_CASE("several threads and several devices", "[cuda]") {
  fake_cuda();
  const auto f = softmax_of_sum();
  const Array x = ramp({9, 33}, 0.25);
  const auto [p, s] = softmax_of_sum()(x);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, device = Device::cuda(t % 2), p = p, s = s] {
      for (int i = 0; i < 5; ++i) {
        const auto [q, r] = f(x.to(device));
        if (!(q.device() == device) || !same_bits(q.to(Device::cpu()), p) || !same_bits(r.to(Device::cpu()), s)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("copies between devices are ordered by streams, without waits of the host", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({5000}, 0.25), expected = affine()(x, x, x);
  Array there = x.to(gpu);
  f(there, there, there), f(x.to(other), x, x);
  const std::int64_t synchronized = fake_cuda().synchronized();
  Array y = f(there, there, there);
  const std::int64_t ran = fake_cuda().launched();
  const Array copy = y.to(other);       // after the work that computes y
  f.into(y)(y, y, y);                   // after the copy
  const Array z = f(copy, copy, copy);  // on the other device, after the copy
  CHECK(fake_cuda().launched() == ran);
  CHECK(same_bits(z.to(Device::cpu()), affine()(expected, expected, expected)));
  CHECK(same_bits(copy.to(Device::cpu()), expected));
  CHECK(same_bits(y.to(Device::cpu()), affine()(expected, expected, expected)));
  there = Array();
  CHECK(fake_cuda().synchronized() == synchronized);
  const std::int64_t peers = fake_cuda().peers();
  CHECK(peers >= 1);
  x.to(gpu).to(other);
  CHECK(fake_cuda().peers() == peers);  // once for each pair
}

TEST_CASE("earlier work on a stream under capture is not lost", "[cuda]") {
  fake_cuda();
  const auto f = affine();
  const Array x = ramp({64}, 0.25), expected = affine()(x, x, x);
  Array there = x.to(gpu);
  void* const a = stream_of_ours();
  const auto begin = fake_cuda().function<int(void*, int)>("cuStreamBeginCapture_v2");
  const auto end_capture = fake_cuda().function<int(void*, void**)>("cuStreamEndCapture");
  void* graph = nullptr;
  Array y;
  {
    const StreamScope scope(gpu, a);
    y = f(there, there, there);
    REQUIRE(begin(a, 1) == 0);
  }
  CHECK_THROWS_WITH(y.to(Device::cpu()),
                    Contains("is being captured into a CUDA graph"));  // waiting would add the default stream to the graph
  REQUIRE(end_capture(a, &graph) == 0);
  CHECK(same_bits(y.to(Device::cpu()), expected));
  y = there = Array();
  end(a);
  std::vector<Array> noise;  // also reuses the memory that the code above used last
  for (int i = 0; i < 5000; ++i) noise.push_back(Array::zeros({64}, f32, gpu));
  for (int i = 0; i < 5000; i += 500) CHECK(same_bits(noise[static_cast<std::size_t>(i)].to(Device::cpu()), Array::zeros({64}, f32)));
}

TEST_CASE("unused programs are unloaded when the device has finished with them, without waits", "[cuda]") {
  fake_cuda();
  using runtime::cuda::Gpu;
  Gpu& device = Gpu::get(0);
  runtime::background::wait();
  const auto load = [&](const char* name) { return device.load(compiler::cuda::DeviceProgram().text() + "// " + name + "\n").module; };
  Gpu::ModulePointer first = load("first");
  void* const a = stream_of_ours();
  Array there;
  {
    const StreamScope scope(gpu, a);
    there = Array::zeros({64}, f32, gpu);  // still pending
    Gpu::Turn turn(device);
    turn.uses(first);
  }
  device.forget_programs();
  const std::int64_t loaded = fake_cuda().loaded(), synchronized = fake_cuda().synchronized(), waiting = fake_cuda().waiting();
  REQUIRE(waiting > 0);
  first.reset();
  device.forget_programs();
  CHECK(fake_cuda().loaded() == loaded);
  CHECK(fake_cuda().waiting() == waiting);
  there.to(Device::cpu());
  load("second");
  device.forget_programs();
  CHECK(fake_cuda().loaded() == loaded - 1);
  CHECK(fake_cuda().synchronized() == synchronized);
  CHECK(fake_cuda().unloaded_early() == 0);
  there = Array();
  end(a);
}

TEST_CASE("varying shapes use the same memory segments, without driver allocations", "[cuda]") {
  fake_cuda();
  trim_memory(gpu);
  Options options;
  options.specialization.depth = 0;
  const auto f = compile([](Tensor x) { return exp(x) * 2.0; }, options);
  const Array x = ramp({1 << 20}, 1e-6);
  const Array there = x.to(gpu);
  for (const int n : {1 << 20, 3000}) f(there.slice(0, 0, n));
  const std::int64_t asked = fake_cuda().allocated(), held = device_stats(gpu).held;
  for (int i = 0; i < 60; ++i) {
    const int n = 1000 + 17'124 * i;
    const Array y = f(there.slice(0, 0, n));
    if (i % 20 == 0) CHECK(same_bits(y.to(Device::cpu()), f(x.slice(0, 0, n))));
  }
  CHECK(fake_cuda().allocated() - asked <= 1);
  CHECK(device_stats(gpu).held <= held + (2 << 20));
}

TEST_CASE("imported and exported tensors are ordered with streams by DLPack's rules", "[cuda]") {
  fake_cuda();
  const auto upload = fake_cuda().function<int(unsigned long long, const void*, std::size_t, void*)>("cuMemcpyHtoDAsync_v2");
  const auto download = fake_cuda().function<int(void*, unsigned long long, std::size_t, void*)>("cuMemcpyDtoHAsync_v2");
  const auto push = fake_cuda().function<int(void*)>("cuCtxPushCurrent_v2");
  const auto pop = fake_cuda().function<int(void**)>("cuCtxPopCurrent_v2");
  const auto wait = fake_cuda().function<int(void*)>("cuStreamSynchronize");
  void* const a = stream_of_ours();
  void* context = nullptr;
  REQUIRE(fake_cuda().function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0);
  Options options;
  options.specialization.depth = 0;
  const auto f = compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; }, options);
  const Array x = ramp({64}, 0.25), expected = affine()(x, x, x);
  f(x.to(gpu), x, x);
  for (void* const theirs : {static_cast<void*>(nullptr), a})
    for (const bool versioned : {false, true}) {
      const Array memory = Array::zeros({64}, f32, gpu);
      synchronize(gpu);
      REQUIRE(push(context) == 0);
      REQUIRE(upload(reinterpret_cast<unsigned long long>(memory.data()), x.data(), 256, theirs) == 0);  // runs as late as possible
      REQUIRE(pop(&context) == 0);
      const std::int64_t waiting = fake_cuda().waiting();
      const Array there = versioned ? Array::from_dlpack_versioned(memory.to_dlpack_versioned(reinterpret_cast<void*>(-1)), theirs)
                                    : Array::from_dlpack(memory.to_dlpack(reinterpret_cast<void*>(-1)), theirs);
      const Array y = f(there, there, there);
      // Passed to the other library, which reads it on its stream.
      DLManagedTensorVersioned* const out = y.to_dlpack_versioned(theirs);
      CHECK(fake_cuda().waiting() > waiting);  // the host waited for nothing
      std::vector<float> read(64);
      REQUIRE(push(context) == 0);
      REQUIRE(download(read.data(), reinterpret_cast<unsigned long long>(y.data()), 256, theirs) == 0);
      REQUIRE(pop(&context) == 0);
      REQUIRE(wait(theirs) == 0);
      CHECK(same_bits(Array::from(read, {64}), expected));
      out->deleter(out);
      CHECK(same_bits(y.to(Device::cpu()), expected));
    }
  // A tensor that the other library returns is reused only after the pending reads of that library's stream.
  std::vector<float> late(64);
  {
    DLManagedTensorVersioned* const out = f(x.to(gpu), x, x).to_dlpack_versioned(nullptr, true);
    CHECK(out->flags == 2);
    REQUIRE(push(context) == 0);
    REQUIRE(download(late.data(), reinterpret_cast<unsigned long long>(out->dl_tensor.data), 256, nullptr) == 0);
    REQUIRE(pop(&context) == 0);
    out->deleter(out);
  }
  std::vector<Array> noise;
  for (int i = 0; i < 40; ++i) noise.push_back(Array::zeros({64}, f32, gpu));
  synchronize(gpu);
  CHECK(same_bits(Array::from(late, {64}), expected));
  end(a);
}

TEST_CASE("with a device in the options, results are on that device", "[cuda]") {
  fake_cuda();
  Options options;
  options.device = gpu;
  const auto f = compile([](Tensor x) { return x * 2.0 + iota({5}, 0, f32); }, options);
  const Array x = ramp({5}, 0.25), y = f(x);
  CHECK(y.device() == gpu);
  CHECK(same_bits(y.to(Device::cpu()), compile([](Tensor x) { return x * 2.0 + iota({5}, 0, f32); })(x)));
  CHECK(f.stats().bytes_uploaded == x.bytes());
  const Comparison same = f.compare(x);
  CHECK(same.equal);
  CHECK_THAT(same.text, Contains("on cuda:0"));
  options.mode = Mode::reference;
  CHECK_THROWS_WITH(compile([](Tensor x) { return x * 2.0; }, options)(x), Contains("mode reference runs on the CPU"));
}

TEST_CASE("captured arrays, pullbacks, signatures and NaN checks on a device", "[cuda]") {
  fake_cuda();
  const Array w = ramp({8}, 0.5), wd = w.to(gpu), x = ramp({8}, 0.25);
  const auto g = compile([wd](Tensor x) { return x * Tensor(wd); });
  const Array y = g(x);
  CHECK(y.device() == gpu);
  CHECK(same_bits(y.to(Device::cpu()), compile([w](Tensor x) { return x * Tensor(w); })(x)));

  const auto f = compile([](Tensor x) { return sum(exp(x) * x, 0); });
  auto [value, pullback] = vjp(f, x.to(gpu));
  auto [cpu_value, cpu_pullback] = vjp(f, x);
  CHECK(same_bits(value.to(Device::cpu()), cpu_value));
  const Array one = Array::scalar(1.0f);
  CHECK(same_bits(pullback(one.to(gpu)).to(Device::cpu()), cpu_pullback(one)));

  const auto h = compile([](Tensor x) { return x + 1.0; });
  h.warm_up({"f32[8]@cuda:0"});
  const std::int64_t compiled = fake_cuda().compiled();
  h(x.to(gpu));
  CHECK(fake_cuda().compiled() == compiled);
  CHECK(h.signatures() == std::vector<std::string>{"f32[8]@cuda:0"});
  CHECK_THROWS_WITH(h.warm_up({"f32[8]@cuda:x"}), Contains("expected a device number"));

  Options options;
  options.check_nan = true;
  const auto l = compile([](Tensor x) { return log(x) + 1.0; }, options);
  CHECK_THROWS_WITH(l(x.to(gpu)), Contains("check_nan") && Contains("`log`"));
}

TEST_CASE("external memory on a device, and DLPack in both directions", "[cuda]") {
  fake_cuda();
  const Array x = ramp({4, 6}, 0.25), there = x.to(gpu);
  synchronize(gpu);
  const auto f = affine();
  int gone = 0;
  struct Owner {
    int* gone;
    explicit Owner(int* g) : gone(g) {}
    Owner(Owner&& o) noexcept : gone(std::exchange(o.gone, nullptr)) {}
    ~Owner() {
      if (gone) ++*gone;
    }
  };
  {
    const Array wrapped = Array::wrap_pointer(const_cast<void*>(there.data()), f32, {4, 6}, {6, 1}, false, gpu, Owner(&gone));
    CHECK(wrapped.device() == gpu);
    CHECK(same_bits(f(wrapped, 2.0, wrapped).to(Device::cpu()), affine()(x, 2.0, x)));
    const auto* const odd = static_cast<const float*>(there.data()) + 1;  // not aligned for vectors
    const Array shifted = Array::wrap_pointer(const_cast<float*>(odd), f32, {20}, {1}, true, gpu);
    CHECK(same_bits(f(shifted, 2.0, 1.0).to(Device::cpu()), affine()(x.reshape({24}).slice(0, 1, 21).copy(), 2.0, 1.0)));
    CHECK(gone == 0);
  }
  CHECK(gone == 1);
  for (const Array& a : {x, there, x.transpose(), there.slice(0, 1, 3), Array::scalar(2.5), ramp({0, 3}, 1), x.bitcast(u32)}) {
    DLManagedTensor* const out = a.to_dlpack();
    const Array back = Array::from_dlpack(out);
    CHECK(back.device() == a.device());
    CHECK(back.dtype() == a.dtype());
    CHECK(same_bits(back.to(Device::cpu()).contiguous(), a.to(Device::cpu()).contiguous()));
    if (a.size() > 0) CHECK(back.data() == a.data());
  }
  CHECK_THROWS_WITH(Array::from_dlpack(nullptr), Contains("the tensor pointer is null"));
}

TEST_CASE("indices on a device are checked", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x, Tensor i) { return take(x, i, 0); });
  const Array x = ramp({9, 6}, 0.25), good = Array::from({3, -1, 0, 8}, {4}), bad = Array::from({3, 9, 0, 8}, {4});
  CHECK(same_bits(f(x.to(gpu), good).to(Device::cpu()), f(x, good)));
  CHECK_THROWS_AS(f(x.to(gpu), bad.to(gpu)).to(Device::cpu()), IndexError);
  CHECK(same_bits(f(x.to(gpu), good).to(Device::cpu()), f(x, good)));
  const auto g = compile([](Tensor x, Tensor i) { return index_add(x, i, take(x, i, 0), 0); });
  CHECK(same_bits(g(x.to(gpu), good).to(Device::cpu()), g(x, good)));
  // Few columns: the updates are sorted, in launches that are one graph from the second call on.
  const auto h = compile([](Tensor x, Tensor i, Tensor u) { return index_add(x, i, u, 0); });
  std::vector<std::int64_t> many(3000);
  for (std::size_t k = 0; k < many.size(); ++k) many[k] = static_cast<std::int64_t>(k * k % 50);
  const Array elements = ramp({50}, 0.25), to = Array::from(many, {3000}), updates = ramp({3000}, 0.001),
              expected = h(elements, to, updates);
  const Array elements_there = elements.to(gpu), to_there = to.to(gpu), updates_there = updates.to(gpu);
  for (int k = 0; k < 4; ++k) CHECK(same_bits(h(elements_there, to_there, updates_there).to(Device::cpu()), expected));
  CHECK(h.explain().find("launches, updates sorted by element") != std::string::npos);

  // Each operator has its words.
  const auto message = [](auto&& call) {
    call();
    try {
      synchronize(gpu);
    } catch (const IndexError& error) { return std::string(error.what()); }
    return std::string();
  };
  const auto loss = compile([](Tensor x, Tensor k) { return cross_entropy(x, k); });
  const Array labels = Array::from({0, 1, 2, 3, 4, 5, 0, 1, 6}, {9});
  CHECK_THAT(message([&] { loss(x.to(gpu), labels); }),
             StartsWith("cross_entropy: an earlier call on cuda:0 had the label 6, which is out of range: there are 6 classes."));
  const Array wide = Array::from({std::uint64_t{1} << 63}, {1});
  CHECK_THAT(message([&] { f(x.to(gpu), wide.to(gpu)); }), Contains("had the index 9223372036854775808,"));

  // An axis without elements has no good index, and no element is read.
  const Array nothing = Array::zeros({0, 6}, f32, gpu), zero = Array::from({0}, {1});
  CHECK_THAT(message([&] { f(nothing, zero.to(gpu)); }), Contains("had the index 0, which is out of range: axis 0 has extent 0."));
}

TEST_CASE("long rows, scans and transposes on a device", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x) { return std::tuple{softmax(x, 0), sum(x, 0), cumsum(x, 0)}; });
  const Array x = ramp({100'001}, 0.001);
  const auto [a, b, c] = f(x);
  for (int i = 0; i < 3; ++i) {
    const auto [p, q, r] = f(x.to(gpu));
    CHECK((same_bits(p.to(Device::cpu()), a) && same_bits(q.to(Device::cpu()), b) && same_bits(r.to(Device::cpu()), c)));
  }
  const auto t = compile([](Tensor x, Tensor w) { return transpose(x) + w; });
  const Array y = ramp({40, 70}, 0.25), w = ramp({70, 40}, 0.5);
  CHECK(same_bits(t(y.to(gpu), w).to(Device::cpu()), t(y, w)));
}

TEST_CASE("a scan of columns on a device may be in place", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x) { return std::tuple{cumsum(x * 2.0, 0), x + 1.0}; });
  const Array x = ramp({300, 5}, 0.25);
  const auto [a, b] = f(x);
  Array p = x.to(gpu), q = Array::empty({300, 5}, f32, gpu);
  f.into(p, q)(p);
  CHECK((same_bits(p.to(Device::cpu()), a) && same_bits(q.to(Device::cpu()), b)));
}

TEST_CASE("array lists are one kernel on a device, as inputs and outputs, and numbers may vary", "[cuda]") {
  fake_cuda();
  const auto step = compile([](std::vector<Tensor> ps, const std::vector<Tensor>& gs, Tensor rate) {
    for (std::size_t t = 0; t < ps.size(); ++t) ps[t] = ps[t] - rate * gs[t] / onepass::sqrt(gs[t] * gs[t] + 1.0f);
    return ps;
  });
  std::vector<Array> ps, gs, ps_there, gs_there;
  for (int t = 0; t < 20; ++t) {
    ps.push_back(ramp({6, 40}, 0.25 + t)), gs.push_back(ramp({6, 40}, 0.5 - t));
    ps_there.push_back(ps.back().to(gpu)), gs_there.push_back(gs.back().to(gpu));
  }
  gs_there[3] = gs[3];  // this array is copied
  const auto equal = [](const std::vector<Array>& got, const std::vector<Array>& expected) {
    bool same = got.size() == expected.size();
    for (std::size_t t = 0; same && t < got.size(); ++t) same = same_bits(got[t].to(Device::cpu()), expected[t]);
    return same;
  };
  for (const double rate : {0.5, 0.25}) CHECK(equal(step(ps_there, gs_there, rate), step(ps, gs, rate)));
  CHECK_THAT(step.explain(), Contains("tables of 128 words"));
  const std::int64_t before = fake_cuda().launched();
  std::vector<Array> own;
  for (const Array& p : ps) own.push_back(p.to(gpu));
  step.into(own)(own, gs_there, 0.5);
  CHECK(equal(own, step(ps, gs, 0.5)));
  CHECK(fake_cuda().launched() - before == 1);
  const Array odd = ramp({241}, 0.75);  // the second element is not 16-byte aligned
  ps[7] = odd.slice(0, 1, 241).reshape({6, 40});
  ps_there[7] = odd.to(gpu).slice(0, 1, 241).reshape({6, 40});
  CHECK(equal(step(ps_there, gs_there, 0.5), step(ps, gs, 0.5)));
}

TEST_CASE("functions of several kernels run as one graph when a call repeats", "[cuda]") {
  fake_cuda();
  const auto f = softmax_of_sum();
  const Array x = ramp({9, 33}, 0.25).to(gpu);
  Array p = Array::empty({9, 33}, f32, gpu), s = Array::empty({33}, f32, gpu);
  const auto [q, r] = softmax_of_sum()(ramp({9, 33}, 0.25));
  const std::int64_t before = fake_cuda().graphs();
  for (int i = 0; i < 6; ++i) {
    f.into(p, s)(x);
    CHECK(same_bits(p.to(Device::cpu()), q));
    CHECK(same_bits(s.to(Device::cpu()), r));
  }
  CHECK(fake_cuda().graphs() >= before + 4);
  CHECK(device_stats(gpu).graph_launches >= 4);
  const std::int64_t again = fake_cuda().graphs();
  Array p2 = Array::empty({9, 33}, f32, gpu);
  f.into(p2, s)(x);  // other memory: launched as usual
  CHECK(fake_cuda().graphs() == again);
  CHECK(same_bits(p2.to(Device::cpu()), q));
}

TEST_CASE("a hot shape gets specialized kernels on a device, by the function's policy", "[cuda]") {
  fake_cuda();
  Options options;
  options.specialization = {.depth = 1, .after_calls = 2, .in_background = false};
  const auto f = compile([](Tensor x, Tensor c) { return x * c + 1.5; }, options);
  const Array x = ramp({50}, 0.25), y = ramp({70}, 0.25);
  const auto check = [&](const Array& of, double c) {
    CHECK(same_bits(f(of.to(gpu), c).to(Device::cpu()), compile([](Tensor x, Tensor c) { return x * c + 1.5; })(of, c)));
  };
  check(x, 2.0);
  CHECK(f.stats().specialized == 0);
  check(x, 2.0);
  CHECK(f.stats().specialized == 1);
  check(x, 2.0);
  check(x, 3.0);  // a number stays a kernel parameter
  for (int i = 0; i < 4; ++i) check(y, 2.0);
  CHECK(f.stats().specialized == 1);  // the depth
  CHECK(f.stats().hot_shapes == 1);
  f.seal();
  CHECK_THROWS_WITH(compile([](Tensor x) { return x * 7.25; },
                            [] {
                              Options o;
                              o.compile = Compile::never;
                              return o;
                            }())(x.to(gpu)),
                    Contains("f32[50]@cuda:0"));
}

TEST_CASE("values of equal literals are computed once on a device too, but not those of numbers of the call", "[cuda]") {
  fake_cuda();
  const auto nodes = [&](const auto& f, auto... numbers) {
    static_cast<void>(f(ramp({50}, 0.25).to(gpu), numbers...));
    return f.last_execution().nodes.size();
  };
  const auto equal = compile([](Tensor x) { return exp(x * 2.5) * 3.0 + exp(x * 2.5); });
  const auto different = compile([](Tensor x) { return exp(x * 2.5) * 3.0 + exp(x * 1.5); });
  CHECK(nodes(equal) < nodes(different));
  const auto of_numbers = [] { return compile([](Tensor x, Tensor a, Tensor b) { return exp(x * a) * 3.0 + exp(x * b); }); };
  CHECK(nodes(of_numbers(), 2.5, 2.5) == nodes(of_numbers(), 2.5, 1.5));
}

TEST_CASE("specialized kernels on a device are tried alternately with the generic ones, and dropped if slower", "[cuda]") {
  fake_cuda();
  runtime::background::wait();  // jobs of earlier tests
  Options options;
  options.specialization = {.depth = 1, .after_calls = 2, .in_background = false};
  for (const bool faster : {true, false}) {
    const auto f = compile([](Tensor x) { return std::tuple{softmax(x, -1), sum(x, 0)}; }, options);
    const Array x = ramp({11, faster ? 35 : 36}, 0.25),
                there = x.to(gpu);  // a shape that no other test uses, so its kernels are not cached
    const auto expected = softmax_of_sum()(x);
    const auto call = [&] {
      const auto [p, s] = f(there);
      return same_bits(p.to(Device::cpu()), std::get<0>(expected)) && same_bits(s.to(Device::cpu()), std::get<1>(expected));
    };
    fake_cuda().elapsed(0.5f, faster ? 0.25f : 0.75f);  // times of the generic and the specialized kernels
    CHECK((call() && call()));
    CHECK(f.stats().specialized == 2);
    const std::int64_t live = fake_cuda().live(), graphs = fake_cuda().graphs();
    CHECK(call());
    CHECK_THAT(f.explain(), Contains("are on trial"));
    CHECK(fake_cuda().live() == live + 2);  // the events of a trial
    bool equal = true;
    for (int i = 0; i < 30; ++i) equal = call() && equal;
    CHECK(equal);
    CHECK_THAT(f.explain(), Contains(faster ? "specialized for these lengths" : "slower and were dropped"));
    CHECK(f.stats().dropped == (faster ? 0 : 1));
    CHECK(fake_cuda().graphs() > graphs);  // graphs of the chosen kernels
  }
  // Calls without waiting: only a few trials are pending at a time, and no trial is lost.
  const auto f = compile([](Tensor x) { return x * 3 + 1; }, options);
  const Array there = ramp({50}, 0.25).to(gpu);
  Array last = f(there);
  const std::int64_t live = fake_cuda().live();
  for (int i = 0; i < 40; ++i) last = f(there);
  CHECK(fake_cuda().live() - live <= 16);
  CHECK_THAT(f.explain(), Contains("are on trial"));
  for (int n = 0; n < 20; ++n) {  // whichever driver call fails, lost trials are repeated
    fake_cuda().fail(n, 719);
    try {
      f(there).to(Device::cpu());
    } catch (const Error&) {}
    fake_cuda().works();
  }
  for (int i = 0; i < 60; ++i) CHECK(same_bits(f(there).to(Device::cpu()), compile([](Tensor x) { return x * 3 + 1; })(ramp({50}, 0.25))));
  CHECK_THAT(f.explain(), !Contains("are on trial"));
}

TEST_CASE("nothing on a device leaks", "[cuda]") {
  fake_cuda();
  {
    const auto f = softmax_of_sum();
    const Array x = ramp({9, 33}, 0.25).to(gpu);
    for (int i = 0; i < 4; ++i) f(x);
  }
  runtime::background::wait();  // the specialized kernels are loaded to the device
  synchronize(gpu);
  CHECK(device_stats(gpu).in_use == 0);
  trim_memory(gpu), trim_memory(other);
  CHECK(fake_cuda().held() == 0);
  CHECK(fake_cuda().entered() == 0);
}
