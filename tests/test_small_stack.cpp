// A host's thread may have a small stack. These tests make first calls there, which record, plan and compile. Each test is a separate
// process, so that its calls are first calls.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "has_codegen.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "runtime/kernel_cache.h"
#include "runtime/os.h"

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

constexpr std::size_t kStack = std::size_t{48} << 10;

// Runs `body` on a thread with a stack of 48 KiB, including guard page and thread-local variables. Returns the text of its exception.
std::string on_small_stack(const std::function<void()>& body) {
  struct Job {
    const std::function<void()>& body;
    std::string error;
  } job{body, ""};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, std::max(kStack, std::size_t(PTHREAD_STACK_MIN))) == 0);
  pthread_t thread;
  const auto run = [](void* raw) -> void* {
    Job& mine = *static_cast<Job*>(raw);
    try {
      mine.body();
    } catch (const std::exception& e) { mine.error = e.what(); }
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &job) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return job.error;
}

// Runs this program again for the named task. Returns its wait status.
[[maybe_unused]] int in_fresh_process(const char* what, const std::string& cache) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("ONEPASS_CACHE_DIR", cache.c_str(), 1);
    setenv("ONEPASS_SMALL_STACK", what, 1);
    execl("/proc/self/exe", "test_small_stack", "[.small]", static_cast<char*>(nullptr));
    _exit(99);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// Makes first calls of several kinds. Throws if a result is wrong.
void first_calls(op::Mode mode) {
  const auto expect = [](double got, double wanted) {
    if (got != wanted) throw std::runtime_error("got " + std::to_string(got) + ", not " + std::to_string(wanted));
  };
  op::Options options;
  options.mode = mode;
  options.check_recording = true;
  const Array x = Array::full({64, 96}, 0.5, op::f32), w = Array::full({96, 32}, 2.0, op::f32);
  auto contraction = op::compile([](Tensor a, Tensor b) { return matmul(a, b); }, options);
  expect(double(contraction(x, w).at<float>({3, 4})), 96);
  auto rows = op::compile([](Tensor a) { return exp(a - max(a, -1, true)) + mean(a); }, options);
  expect(double(rows(x).at<float>({1, 2})), 1.5);
  auto step = op::compile(
      [](Tensor a, Tensor b) {
        Tensor loss = sum(square(matmul(a, b)));
        auto [da, db] = grad(loss, a, b);
        return std::tuple{loss, a - 0.0f * da, b - 0.0f * db};
      },
      options);
  expect(double(std::get<1>(step(x, w)).at<float>({0, 0})), 0.5);
  auto text = op::formula("t = cumsum(x, 1); u = take(t, k, 1); a = u[:, 1] - u[:, 0]; b = concat([x, t], 0)*2", options);
  std::vector<std::int64_t> ends{0, 95};
  const op::FormulaResults results = text({{"x", x}, {"k", Array::wrap(ends)}});
  expect(double(results["a"].at<float>({5})), 47.5);
  expect(double(results["b"].at<float>({64, 1})), 2);
  Array y = Array::zeros({64, 96}, op::f32);
  auto bound = op::compile([](Tensor a) { return a * 2.0f + 1.0f; }, options).bind(y, x);
  bound();
  expect(double(y.at<float>({63, 95})), 2);
  auto [out, pullback] = op::vjp(op::compile([](Tensor a) { return tanh(a) * a; }, options), Array::zeros({16}, op::f32));
  expect(double(pullback(Array::ones({16}, op::f32)).at<float>({0})), 0);
}

}  // namespace

// Hidden: the tests below start it.
TEST_CASE("first calls in a fresh process", "[.small]") {
  const char* const what = std::getenv("ONEPASS_SMALL_STACK");
  REQUIRE(what);
  const op::Mode mode = std::string(what) == "reference"     ? op::Mode::reference
                        : std::string(what) == "unfused"     ? op::Mode::unfused
                        : std::string(what) == "specialized" ? op::Mode::specialized
                                                             : op::Mode::adaptive;
  if (std::string(what) == "compiled") onepass::runtime::set_tiles(false);
  CHECK(on_small_stack([&] { first_calls(mode); }) == "");
  onepass::runtime::wait_for_optimised();  // waits until the code is stored on disk
}

TEST_CASE("the first call works on a thread with a stack of 48 KiB") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::printf("skipped: under a sanitizer frames are several times as large\n");
#else
  std::string folder = (std::filesystem::temp_directory_path() / "onepass-test-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  std::vector<const char*> modes{"reference"};
  if (onepass::test::has_codegen()) modes = {"reference", "adaptive", "compiled", "adaptive again", "unfused", "specialized"};
  for (const char* const mode : modes) {
    CAPTURE(mode);
    CHECK(in_fresh_process(mode, folder) == 0);
  }
  // The cache was used, so the folder is not empty.
  if (onepass::test::has_codegen()) CHECK_FALSE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
#endif
}

TEST_CASE("work moves from a small stack to a large one, and exceptions are passed back") {
  std::size_t small = 0, large = 0;
  const std::string error = on_small_stack([&] {
    small = onepass::os::stack_left();
    onepass::os::on_large_stack([&] {
      large = onepass::os::stack_left();
      throw onepass::ValueError("from there");
    });
  });
  CHECK(error == "from there");
  CHECK(small > 0);
  CHECK(small < kStack);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(large > (std::size_t{4} << 20));
#endif
  // With enough stack, `on_large_stack` stays on the same thread.
  const int here = onepass::os::thread_number();
  int there = 0;
  onepass::os::on_large_stack([&] { there = onepass::os::thread_number(); });
  CHECK(here == there);
}
