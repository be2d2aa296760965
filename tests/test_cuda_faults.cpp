// The tests open and use a device of fake_cuda, and make one driver call after another fail. The error is one sentence, nothing leaks,
// CPU calls still work, and the next call on the device works.
#include <catch2/catch.hpp>

#include <string>

#include "arrays.h"
#include "fake_cuda.h"
#include "how_long.h"
#include "onepass/onepass.h"

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

const Device gpu = Device::cuda(0), other = Device::cuda(1);

constexpr int kInvalid = 1, kOutOfMemory = 2, kLost = 719;

// Returns the error message, or an empty string without an error.
template <class F> std::string error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) { return error.what(); }
  return {};
}

void check_sentence(const std::string& said) {
  CHECK_THAT(said, StartsWith("cuda: ") && Contains(" failed: ") && Contains("). "));
  CHECK(said.find('\n') == std::string::npos);
}

Options after_calls(int calls) {
  Options options;
  options.specialization = {.depth = calls ? 1 : 0, .after_calls = calls, .in_background = false};
  return options;
}

// Typical uses of a device. Functions are compiled anew, but their kernels are already loaded.
struct Uses {
  Array x = ramp({6, 40}, 0.25), w = ramp({40}, 0.5), indices = Array::from({3, -1, 0, 5}, {4});
  std::vector<Array> expected = results(Device::cpu(), nullptr);

  std::vector<Array> results(Device device, void* stream) const {
    const auto affine = compile([](Tensor x, Tensor w) { return x * w + 0.5; }, after_calls(2));
    const auto several = compile([](Tensor x) { return std::tuple{softmax(x, -1), sum(x, 0)}; }, after_calls(0));
    const auto taken = compile([](Tensor x, Tensor i) { return take(x, i, 0); });
    std::vector<Array> out;
    const Array there = x.to(device);
    for (int i = 0; i < 4; ++i) out.push_back(affine(there, w));  // an upload, and trials of specialized kernels
    out.push_back(affine(there.transpose().copy().transpose(), w));
    Array p = Array::zeros({6, 40}, f32, device), s = Array::zeros({40}, f32, device);
    for (int i = 0; i < 3; ++i) several.into(p, s)(there);  // a graph
    out.push_back(p), out.push_back(s);
    out.push_back(taken(there, indices));
    Array host = Array::zeros({6, 40}, f32), wide = Array::zeros({6, 80}, f32, device), narrow = wide.slice(1, 0, 80, 2);
    affine.into(host)(there, w);
    affine.into(narrow)(there, w);
    affine.into(narrow)(narrow, w);
    out.push_back(host), out.push_back(narrow);
    if (stream) {
      const StreamScope scope(device, stream);
      out.push_back(affine(there, out[0].slice(0, 0, 1)));
    } else {
      out.push_back(affine(there, out[0].slice(0, 0, 1)));
    }
    out.push_back(device.is_cuda() ? out.back().to(other).to(device) : out.back());
    for (Array& a : out) a = a.to(Device::cpu()).contiguous();
    return out;
  }
  bool same(const std::vector<Array>& got) const {
    bool all = got.size() == expected.size();
    for (std::size_t k = 0; all && k < got.size(); ++k) all = same_bits(got[k], expected[k]);
    return all;
  }
};

}  // namespace

TEST_CASE("opening a device: a failed driver call leaves nothing open, and the next use tries again", "[cuda]") {
  fake_cuda();
  for (const Device device : {gpu, other}) {
    const std::int64_t streams = fake_cuda().streams();
    const int retained = fake_cuda().retained();
    int failures = 0;
    for (std::int64_t n = 0;; ++n) {
      INFO("call " << n);
      fake_cuda().fail(n, n % 2 ? kInvalid : kOutOfMemory);
      const std::string said = error_of([&] { synchronize(device); });
      const bool reached = fake_cuda().failed();
      fake_cuda().works();
      CHECK(fake_cuda().entered() == 0);
      if (said.empty()) {
        CHECK(!reached);
        break;
      }
      ++failures;
      check_sentence(said);
      const int opened = fake_cuda().retained() - retained;  // if it was opened, the wait failed
      CHECK((opened == 0 || opened == 1));
      CHECK(fake_cuda().streams() - streams == 2 * opened);
    }
    CHECK(failures > 8);
    CHECK(fake_cuda().retained() == retained + 1);
    CHECK(fake_cuda().streams() == streams + 2);
  }
}

TEST_CASE("using devices: any failed driver call is a one-line error, and nothing leaks", "[cuda]") {
  fake_cuda();
  const Uses uses;
  synchronize(gpu), synchronize(other);
  void* const stream = stream_of_ours();
  for (int i = 0; i < 2; ++i) REQUIRE(uses.same(uses.results(gpu, stream)));  // loads programs and fills the pools
  REQUIRE(fake_cuda().graphs() > 0);
  const std::int64_t in_use = device_stats(gpu).in_use;
  REQUIRE(in_use == 0);
  int failures = 0;
  for (const bool for_good : {false, true})
    for (std::int64_t n = 0;; n += has_sanitizer() ? 7 : 1) {
      REQUIRE(n < 2000);
      INFO("call " << n << (for_good ? " and all after it" : ""));
      fake_cuda().fail(n, n % 2 ? kOutOfMemory : kLost, for_good);
      std::vector<Array> got;
      const std::string said = error_of([&] { got = uses.results(gpu, stream); });
      const bool reached = for_good ? !said.empty() : fake_cuda().failed();
      const bool cpu_goes_on = uses.same(uses.results(Device::cpu(), nullptr));
      fake_cuda().works();
      CHECK(cpu_goes_on);
      if (!said.empty()) check_sentence(said), ++failures;
      else CHECK(uses.same(got));  // the runtime freed memory or retried
      got.clear();
      CHECK(fake_cuda().entered() == 0);
      CHECK(device_stats(gpu).in_use == in_use);
      CHECK(device_stats(other).in_use == 0);
      CHECK(device_stats(gpu).held + device_stats(other).held == fake_cuda().held());
      if (!reached) break;
      CHECK(uses.same(uses.results(gpu, stream)));  // the state is restored for the next round
    }
  CHECK(failures > (has_sanitizer() ? 20 : 150));
  CHECK(uses.same(uses.results(gpu, stream)));
  fake_cuda().function<int(void*)>("cuStreamDestroy_v2")(stream);
  trim_memory(gpu), trim_memory(other);
  CHECK(fake_cuda().held() == 0);
}
