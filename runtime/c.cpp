// The C interface, onepass/c.h, implemented with the C++ interface: handles, status codes, the text of each thread's last error.
#include "onepass/c.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "ir/of_thread.h"
#include "onepass/binding.h"
#include "onepass/onepass.h"

using onepass::Array;

struct onepass_array {
  Array array;
  std::atomic<int> owners{1};
};
struct onepass_options {
  onepass::Options options;
};
struct onepass_formula {
  onepass::Formula formula;
};

namespace {

struct LastError {
  std::string text;
};
std::string& last_error() { return onepass::ir::OfThread<LastError>::get().text; }

onepass_status failed(onepass_status status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) { last_error().clear(); }
  return status;
}

// Runs `body`; converts an exception to a status and this thread's last error.
template <class Body> onepass_status guarded(Body&& body) noexcept {
  using namespace onepass;
  try {
    body();
    return ONEPASS_OK;
  } catch (const ShapeError& e) { return failed(ONEPASS_SHAPE_ERROR, e.what()); } catch (const DTypeError& e) {
    return failed(ONEPASS_DTYPE_ERROR, e.what());
  } catch (const ValueError& e) { return failed(ONEPASS_VALUE_ERROR, e.what()); } catch (const NameError& e) {
    return failed(ONEPASS_NAME_ERROR, e.what());
  } catch (const IndexError& e) { return failed(ONEPASS_INDEX_ERROR, e.what()); } catch (const FormulaError& e) {
    return failed(ONEPASS_FORMULA_ERROR, e.what());
  } catch (const IoError& e) { return failed(ONEPASS_IO_ERROR, e.what()); } catch (const MemoryError& e) {
    return failed(ONEPASS_MEMORY_ERROR, e.what());
  } catch (const CancelledError& e) { return failed(ONEPASS_CANCELLED_ERROR, e.what()); } catch (const UnsupportedError& e) {
    return failed(ONEPASS_UNSUPPORTED_ERROR, e.what());
  } catch (const Error& e) { return failed(ONEPASS_ERROR, e.what()); } catch (const std::bad_alloc& e) {
    return failed(ONEPASS_MEMORY_ERROR, e.what());
  } catch (const std::exception& e) { return failed(ONEPASS_INTERNAL_ERROR, e.what()); } catch (...) {
    return failed(ONEPASS_INTERNAL_ERROR, "an exception of an unknown type");
  }
}

template <class T> T& checked(T* pointer, const char* function, const char* what) {
  if (!pointer) throw onepass::ValueError(fmt::format("{}: {} is null", function, what));
  return *pointer;
}

onepass::DType dtype_of(onepass_dtype dtype, const char* function) {
  static_assert(ONEPASS_F64 == static_cast<int>(onepass::DType::F64) && ONEPASS_U8 == static_cast<int>(onepass::DType::U8));
  if (dtype < 0 || dtype >= onepass::kDTypeCount)
    throw onepass::ValueError(fmt::format("{}: {} is not a valid dtype", function, static_cast<int>(dtype)));
  return static_cast<onepass::DType>(dtype);
}

std::span<const std::int64_t> list_of(const std::int64_t* list, int rank, const char* function) {
  if (rank < 0 || rank > onepass::kMaxRank)
    throw onepass::ShapeError(fmt::format("{}: the rank {} is not between 0 and {}", function, rank, onepass::kMaxRank));
  if (rank > 0) static_cast<void>(checked(list, function, "the shape"));
  return {list, static_cast<std::size_t>(rank)};
}

onepass_array* handle(Array array) { return new onepass_array{std::move(array)}; }

std::vector<onepass::FormulaArgument> arguments_of(const onepass_value* values, std::size_t count, const char* function) {
  std::vector<onepass::FormulaArgument> out;
  if (count > 0) static_cast<void>(checked(values, function, "the list of arguments"));
  for (std::size_t i = 0; i < count; ++i) {
    const onepass_value& v = values[i];
    switch (v.kind) {
      case ONEPASS_VALUE_ARRAY: out.emplace_back(checked(v.of.array, function, "an array argument").array); break;
      case ONEPASS_VALUE_FLOAT: out.emplace_back(v.of.real); break;
      case ONEPASS_VALUE_INT: out.emplace_back(v.of.integer); break;
      case ONEPASS_VALUE_UINT: out.emplace_back(v.of.natural); break;
      case ONEPASS_VALUE_BOOL: out.emplace_back(v.of.integer != 0); break;
      default: throw onepass::ValueError(fmt::format("{}: argument {} has the unknown kind {}", function, i, v.kind));
    }
  }
  return out;
}

char* text_copy(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

extern "C" {

int onepass_abi_version(void) { return ONEPASS_ABI_VERSION; }
const char* onepass_version(void) { return ONEPASS_VERSION; }
const char* onepass_last_error(void) { return last_error().c_str(); }

// ---- arrays

onepass_status onepass_array_empty(onepass_dtype dtype, int rank, const int64_t* shape, onepass_array** out) {
  constexpr const char* kName = "onepass_array_empty";
  return guarded([&] { checked(out, kName, "out") = handle(Array::empty(list_of(shape, rank, kName), dtype_of(dtype, kName))); });
}

onepass_status onepass_array_wrap(void* data, onepass_dtype dtype, int rank, const int64_t* shape, const int64_t* strides, int read_only,
                                  void (*release)(void* context), void* context, onepass_array** out) {
  constexpr const char* kName = "onepass_array_wrap";
  struct Owner {
    void (*release)(void*) = nullptr;
    void* context = nullptr;
    ~Owner() {
      if (release) release(context);
    }
  };
  return guarded([&] {
    onepass_array*& result = checked(out, kName, "out");
    const auto lengths = list_of(shape, rank, kName);
    std::vector<std::int64_t> steps(lengths.size(), 1);
    if (strides) steps.assign(strides, strides + rank);
    else
      for (std::size_t i = lengths.size(); i-- > 1;)
        if (__builtin_mul_overflow(steps[i], lengths[i], &steps[i - 1]))
          throw onepass::ShapeError("onepass_array_wrap: the shape has more elements than a 64-bit address can count");
    auto made = std::make_unique<onepass_array>();
    const auto owner = onepass::detail::Shared<Owner>::make();
    made->array = Array::wrap_pointer(data, dtype_of(dtype, kName), lengths, steps, read_only != 0, owner);
    owner->release = release, owner->context = context;  // nothing can fail after this
    result = made.release();
  });
}

onepass_status onepass_array_from_dlpack(DLManagedTensorVersioned* tensor, onepass_array** out) {
  return guarded([&] {
    onepass_array*& result = checked(out, "onepass_array_from_dlpack", "out");
    auto made = std::make_unique<onepass_array>();
    made->array = Array::from_dlpack_versioned(tensor);
    result = made.release();
  });
}
onepass_status onepass_array_to_dlpack(const onepass_array* array, DLManagedTensorVersioned** out) {
  return guarded([&] {
    constexpr const char* kName = "onepass_array_to_dlpack";
    checked(out, kName, "out") = checked(array, kName, "the array").array.to_dlpack_versioned();
  });
}

void onepass_array_retain(onepass_array* array) {
  if (array) array->owners.fetch_add(1, std::memory_order_relaxed);
}
void onepass_array_release(onepass_array* array) {
  if (array && array->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete array;
}

onepass_dtype onepass_array_dtype(const onepass_array* array) { return static_cast<onepass_dtype>(array->array.dtype()); }
int onepass_array_rank(const onepass_array* array) { return array->array.rank(); }
const int64_t* onepass_array_shape(const onepass_array* array) { return array->array.shape().data(); }
const int64_t* onepass_array_strides(const onepass_array* array) { return array->array.strides().data(); }
int64_t onepass_array_size(const onepass_array* array) { return array->array.size(); }
const void* onepass_array_data(const onepass_array* array) { return array->array.data(); }
void* onepass_array_mutable_data(const onepass_array* array) {
  return array->array.is_read_only() ? nullptr : const_cast<void*>(array->array.data());
}
onepass_status onepass_array_copy_to(const onepass_array* array, void* out, size_t bytes) {
  constexpr const char* kName = "onepass_array_copy_to";
  return guarded([&] {
    const Array& a = checked(array, kName, "the array").array;
    if (bytes != static_cast<std::size_t>(a.bytes()))
      throw onepass::ValueError(
          fmt::format("{}: the buffer has {} bytes, but the elements have {} bytes; the sizes must be equal", kName, bytes, a.bytes()));
    if (bytes > 0) a.to(onepass::Device::cpu()).copy_elements(&checked(static_cast<char*>(out), kName, "out"));
  });
}

// ---- options

onepass_status onepass_options_new(onepass_options** out) {
  return guarded([&] {
    auto made = std::make_unique<onepass_options>();
    made->options.check_recording = false;
    checked(out, "onepass_options_new", "out") = made.release();
  });
}
void onepass_options_release(onepass_options* options) { delete options; }
onepass_status onepass_options_set(onepass_options* options, const char* name, const char* value) {
  constexpr const char* kName = "onepass_options_set";
  return guarded([&] {
    onepass::detail::set_option(checked(options, kName, "options").options, &checked(name, kName, "the name"),
                                &checked(value, kName, "the value"));
  });
}
onepass_status onepass_options_set_stop(onepass_options* options, int (*stop)(void* context), void* context) {
  return guarded([&] {
    onepass::Options& o = checked(options, "onepass_options_set_stop", "options").options;
    if (!stop) o.should_stop = nullptr;
    else o.should_stop = [stop, context] { return stop(context) != 0; };
  });
}

// ---- formulas

onepass_status onepass_formula_new(const char* text, const onepass_options* options, onepass_formula** out) {
  constexpr const char* kName = "onepass_formula_new";
  return guarded([&] {
    onepass_formula*& result = checked(out, kName, "out");
    const char* const source = &checked(text, kName, "the text");
    result = new onepass_formula{onepass::formula(source, options ? options->options : onepass::Options())};
  });
}
void onepass_formula_release(onepass_formula* formula) { delete formula; }

size_t onepass_formula_inputs(const onepass_formula* formula) { return formula->formula.inputs().size(); }
size_t onepass_formula_outputs(const onepass_formula* formula) { return formula->formula.outputs().size(); }
const char* onepass_formula_input(const onepass_formula* formula, size_t index) {
  const auto& names = formula->formula.inputs();
  return index < names.size() ? names[index].c_str() : nullptr;
}
const char* onepass_formula_output(const onepass_formula* formula, size_t index) {
  const auto& names = formula->formula.outputs();
  return index < names.size() ? names[index].c_str() : nullptr;
}

onepass_status onepass_formula_call(const onepass_formula* formula, const onepass_value* arguments, size_t argument_count,
                                    onepass_array** results, size_t result_count) {
  constexpr const char* kName = "onepass_formula_call";
  return guarded([&] {
    const onepass::Formula& f = checked(formula, kName, "the formula").formula;
    static_cast<void>(checked(results, kName, "the list of results"));
    if (result_count != f.outputs().size())
      throw onepass::ValueError(
          fmt::format("{}: the list has space for {} results, but the formula has {}", kName, result_count, f.outputs().size()));
    const auto given = arguments_of(arguments, argument_count, kName);
    const onepass::FormulaResults got = f(std::span<const onepass::FormulaArgument>(given));
    std::vector<std::unique_ptr<onepass_array>> made;
    for (std::size_t i = 0; i < result_count; ++i) made.emplace_back(handle(got[i]));
    for (std::size_t i = 0; i < result_count; ++i) results[i] = made[i].release();
  });
}

onepass_status onepass_formula_into(const onepass_formula* formula, const onepass_value* arguments, size_t argument_count,
                                    onepass_array* const* targets, size_t target_count) {
  constexpr const char* kName = "onepass_formula_into";
  return guarded([&] {
    const onepass::Formula& f = checked(formula, kName, "the formula").formula;
    static_cast<void>(checked(targets, kName, "the list of destinations"));
    std::vector<Array> arrays;
    for (std::size_t i = 0; i < target_count; ++i) arrays.push_back(checked(targets[i], kName, "a destination").array);
    f.into(arrays, arguments_of(arguments, argument_count, kName));
  });
}

onepass_status onepass_formula_warm_up(const onepass_formula* formula, const char* signature) {
  constexpr const char* kName = "onepass_formula_warm_up";
  return guarded([&] {
    checked(formula, kName, "the formula").formula.warm_up(std::vector<std::string>{&checked(signature, kName, "the signature")});
  });
}

onepass_status onepass_formula_stats(const onepass_formula* formula, onepass_stats* out) {
  constexpr const char* kName = "onepass_formula_stats";
  return guarded([&] {
    const std::size_t room = checked(out, kName, "out").bytes;
    const onepass::Stats s = checked(formula, kName, "the formula").formula.stats();
    const onepass_stats all{room,        s.calls,       s.recordings, s.kernels,    s.launches,      s.compiles,
                            s.optimised, s.specialized, s.fallbacks,  s.bytes_read, s.bytes_written, s.bytes_allocated};
    if (room < sizeof(std::size_t))
      throw onepass::ValueError(fmt::format("{}: `bytes` is {}. Set it to sizeof(onepass_stats).", kName, room));
    std::memcpy(out, &all, std::min(room, sizeof all));  // a program with an older, shorter struct gets its fields
  });
}

onepass_status onepass_formula_last_graph(const onepass_formula* formula, char** text) {
  constexpr const char* kName = "onepass_formula_last_graph";
  return guarded([&] { checked(text, kName, "text") = text_copy(checked(formula, kName, "the formula").formula.last_graph()); });
}
onepass_status onepass_formula_explain(const onepass_formula* formula, char** text) {
  constexpr const char* kName = "onepass_formula_explain";
  return guarded([&] { checked(text, kName, "text") = text_copy(checked(formula, kName, "the formula").formula.explain()); });
}
void onepass_free_text(char* text) { std::free(text); }

// ---- the process

onepass_status onepass_set_threads(int threads) {
  return guarded([&] { onepass::set_threads(threads); });
}
void onepass_trim_memory(size_t keep) { onepass::trim_memory(keep); }

}  // extern "C"
