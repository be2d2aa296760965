// libFuzzer: calls of the C interface, drawn by the input's bytes. Arrays, options and formulas are created, used, combined in any order,
// and released. Each call returns a status. On failure there is an error text and no object. Every handle is released at the end, and the
// sanitizer finds leaks.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fuzzers/bytes.h"
#include "onepass/c.h"
#include "onepass/runtime.h"

namespace {

constexpr std::size_t kHandles = 6;

constexpr const char* kFormulas[] = {"x*2 + y",
                                     "sum(x, axis=0)",
                                     "softmax(x)",
                                     "p = exp(x); q = p*y; r = sum(q)",
                                     "x @ y",
                                     "sort(x)",
                                     "concat([x, y], 0)",
                                     "where(x > 0, x, y)",
                                     "cast(x, i32) // 3",
                                     "x[1:] - x[:-1]",
                                     "take(x, y, 0)"};
constexpr const char* kOptions[] = {"mode",        "relax", "threads",    "vector_bytes", "depth",     "after_calls", "memory_budget",
                                    "array_bytes", "work",  "compile_ms", "compile",      "check_nan", "device"};
constexpr const char* kValues[] = {"adaptive", "reference", "generic", "specialized", "unfused", "contract", "all",  "none", "1",    "2",
                                   "0",        "-1",        "64",      "1000000",     "never",   "allowed",  "true", "cpu",  "false"};

void check(bool good) {
  if (!good) std::abort();
}

class Calls {
 public:
  explicit Calls(onepass::test::InputBytes input) : input_(input) {
    for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<float>(i) / 8 - 3;
  }
  ~Calls() {
    for (onepass_array* const a : arrays_) onepass_array_release(a);
    for (onepass_formula* const f : formulas_) onepass_formula_release(f);
    for (onepass_options* const o : options_) onepass_options_release(o);
    check(wrapped_ == released_);
  }
  void run() {
    for (int k = 0; k < 40 && !input_.is_empty(); ++k) step();
  }

 private:
  onepass::test::InputBytes input_;
  std::array<float, 256> data_;
  std::array<onepass_array*, kHandles> arrays_{};
  std::array<onepass_formula*, kHandles> formulas_{};
  std::array<onepass_options*, kHandles> options_{};
  std::int64_t shape_[4], strides_[4];
  int wrapped_ = 0, released_ = 0;

  template <class T> T*& one(std::array<T*, kHandles>& of) { return of[input_.below(kHandles)]; }
  int shape() {
    const int rank = static_cast<int>(input_.below(5));
    for (int i = 0; i < 4; ++i) shape_[i] = input_.below(16) == 0 ? input_.number<std::int64_t>() : input_.below(6);
    return input_.below(20) == 0 ? static_cast<int>(input_.byte()) - 8 : rank;
  }
  std::int64_t reach(int rank) const {  // returns the elements of a row-major array of the shape, or more than any wrapped array has
    std::int64_t count = 1;
    for (int i = 0; i < rank; ++i) {
      if (shape_[i] < 0 || shape_[i] > 256) return 257;
      count *= shape_[i];
    }
    return count;
  }
  onepass_dtype dtype() {
    return static_cast<onepass_dtype>(input_.below(12) == 0 ? static_cast<int>(input_.byte()) - 8 : input_.below(13));
  }
  // Checks and stores the result of a call that creates an object.
  template <class T> void made(onepass_status status, T* result, T*& place, void (*release)(T*)) {
    check((status == ONEPASS_OK) == (result != nullptr));
    if (status != ONEPASS_OK) return check(*onepass_last_error() != 0);
    release(place);
    place = result;
  }
  static void text(const onepass_formula* f, onepass_status (*of)(const onepass_formula*, char**)) {
    char* text = nullptr;
    const onepass_status status = of(f, &text);
    check((status == ONEPASS_OK) == (text != nullptr));
    onepass_free_text(text);
  }

  std::vector<onepass_value> arguments() {
    std::vector<onepass_value> all;
    for (std::uint32_t n = input_.below(5); n-- > 0;) {
      switch (input_.below(5)) {
        case 0: all.push_back(onepass_of_float(0.5)); break;
        case 1: all.push_back(onepass_of_int(static_cast<std::int8_t>(input_.byte()))); break;
        default: all.push_back(onepass_of_array(one(arrays_)));
      }
      if (input_.below(30) == 0) all.back().kind = static_cast<std::int32_t>(input_.byte()) - 5;
    }
    return all;
  }

  void step() {
    switch (input_.below(14)) {
      case 0: {
        const int rank = shape();
        onepass_array* a = nullptr;
        if (rank > 4) return;  // only four extents exist
        const onepass_status status = onepass_array_empty(dtype(), rank, shape_, &a);
        if (a && onepass_array_size(a) <= 1 << 16) std::memset(onepass_array_mutable_data(a), 0, bytes(a));
        made(status, a, one(arrays_), onepass_array_release);
        break;
      }
      case 1: {
        const int rank = shape();
        if (rank > 4 || reach(rank) > static_cast<std::int64_t>(data_.size())) return;
        const bool has_strides = input_.below(3) == 0;
        for (int i = 0; i < 4; ++i) strides_[i] = i + 1 == rank ? 1 : 0;
        onepass_array* a = nullptr;
        const auto count = [](void* calls) { ++static_cast<Calls*>(calls)->released_; };
        const onepass_status status = onepass_array_wrap(data_.data(), ONEPASS_F32, rank, shape_, has_strides ? strides_ : nullptr,
                                                         static_cast<int>(input_.below(2)), count, this, &a);
        wrapped_ += status == ONEPASS_OK;
        made(status, a, one(arrays_), onepass_array_release);
        break;
      }
      case 2: {
        onepass_array*& a = one(arrays_);
        onepass_array_retain(a);
        onepass_array_release(a);
        if (input_.below(2)) onepass_array_release(a), a = nullptr;
        break;
      }
      case 3: {
        onepass_array* const from = one(arrays_);
        DLManagedTensorVersioned* tensor = nullptr;
        if (onepass_array_to_dlpack(from, &tensor) != ONEPASS_OK) return check(!tensor);
        onepass_array* a = nullptr;
        const onepass_status status = onepass_array_from_dlpack(tensor, &a);
        check(status == ONEPASS_OK);
        made(status, a, one(arrays_), onepass_array_release);
        break;
      }
      case 4: {
        onepass_array* const a = one(arrays_);
        std::vector<char> out(a && bytes(a) <= 1 << 16 && input_.below(4) ? bytes(a) : input_.below(64));
        check(onepass_array_copy_to(a, out.data(), out.size()) != ONEPASS_OK || (a && out.size() == bytes(a)));
        break;
      }
      case 5: {
        onepass_options* o = nullptr;
        const onepass_status status = onepass_options_new(&o);
        if (o)
          check(onepass_options_set(o, "threads", "1") == ONEPASS_OK && onepass_options_set(o, "work", "1000000") == ONEPASS_OK &&
                onepass_options_set(o, "array_bytes", "1000000") == ONEPASS_OK);
        made(status, o, one(options_), onepass_options_release);
        break;
      }
      case 6: {
        const std::string name = input_.below(8) ? kOptions[input_.below(std::size(kOptions))] : input_.text(12);
        const std::string value = input_.below(8) ? kValues[input_.below(std::size(kValues))] : input_.text(12);
        // Keeps the settings that bound the cost of a formula.
        if (name == "work" || name == "array_bytes" || name == "threads") return;
        const onepass_status status = onepass_options_set(one(options_), name.c_str(), value.c_str());
        check(status == ONEPASS_OK || *onepass_last_error() != 0);
        break;
      }
      case 7:
        onepass_options_set_stop(
            one(options_), input_.below(2) ? [](void*) { return 0; } : [](void*) { return 1; }, nullptr);
        break;
      case 8: {
        onepass_options* const o = one(options_);
        const std::string source = input_.below(3) && o ? input_.text(60) : kFormulas[input_.below(std::size(kFormulas))];
        onepass_formula* f = nullptr;
        const onepass_status status = onepass_formula_new(input_.below(20) ? source.c_str() : nullptr, o, &f);
        if (f) {
          check(onepass_formula_outputs(f) > 0 && onepass_formula_output(f, 0) && !onepass_formula_output(f, onepass_formula_outputs(f)));
          check(!onepass_formula_input(f, onepass_formula_inputs(f)));
        }
        made(status, f, one(formulas_), onepass_formula_release);
        break;
      }
      case 9:
      case 10: {
        onepass_formula* const f = one(formulas_);
        const std::vector<onepass_value> given = arguments();
        std::vector<onepass_array*> results(f && input_.below(10) ? onepass_formula_outputs(f) : input_.below(4), nullptr);
        const onepass_status status = onepass_formula_call(f, given.data(), given.size(), results.data(), results.size());
        for (onepass_array* const r : results) check((status == ONEPASS_OK) == (r != nullptr));
        check(status == ONEPASS_OK || *onepass_last_error() != 0);
        check(status != ONEPASS_INTERNAL_ERROR);
        for (onepass_array* const r : results) {
          onepass_array*& place = one(arrays_);
          onepass_array_release(place);
          place = r;
        }
        break;
      }
      case 11: {
        onepass_formula* const f = one(formulas_);
        const std::vector<onepass_value> given = arguments();
        std::vector<onepass_array*> targets(input_.below(4));
        for (onepass_array*& t : targets) t = one(arrays_);
        check(onepass_formula_into(f, given.data(), given.size(), targets.data(), targets.size()) != ONEPASS_INTERNAL_ERROR);
        break;
      }
      case 12: {
        const std::string signature = input_.below(2) ? input_.text(30) : "f32[2,3] f32[3]";
        check(onepass_formula_warm_up(one(formulas_), signature.c_str()) != ONEPASS_INTERNAL_ERROR);
        break;
      }
      default: {
        onepass_formula* const f = one(formulas_);
        text(f, onepass_formula_last_graph);
        text(f, onepass_formula_explain);
        onepass_stats stats;
        stats.bytes = input_.below(2) ? sizeof stats : input_.below(sizeof stats);
        onepass_formula_stats(f, &stats);
        onepass_trim_memory(0);
      }
    }
  }
  static std::size_t bytes(const onepass_array* a) {
    constexpr std::size_t kSizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
    return static_cast<std::size_t>(onepass_array_size(a)) * kSizes[onepass_array_dtype(a)];
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool once = [] {
    onepass::set_log([](onepass::LogLevel, std::string_view) {});
    onepass::set_compile_threads(0);
    onepass::set_memory_limit(std::size_t{256} << 20);
    onepass_set_threads(1);
    return true;
  }();
  static_cast<void>(once);
  Calls(onepass::test::InputBytes(data, size)).run();
  return 0;
}
