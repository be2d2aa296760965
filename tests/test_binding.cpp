// Functions for bindings to other languages: source lines of that language, indices as a list, results by key, DLPack since version 1.0.
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "onepass/binding.h"
#include "onepass/onepass.h"
#include "runtime/dlpack.h"

using namespace onepass;
using Catch::Contains;

namespace {

const std::source_location kNowhere{};  // operators of another language have no C++ location

}  // namespace

TEST_CASE("nodes recorded by another language have that language's line", "[binding]") {
  CHECK_FALSE(detail::is_recording());
  detail::recorded_at("nowhere.py", 1);  // without a recording the call does nothing
  const auto f = compile([](Tensor x, Tensor w) {
    CHECK(detail::is_recording());
    detail::recorded_at("model.py", 7);
    const Tensor y = add(Operand(x, kNowhere), Operand(2.0, kNowhere));
    detail::recorded_at("model.py", 9);
    return mul(Operand(y, kNowhere), Operand(w, kNowhere));
  });
  f(Array::ones({4}, f32), Array::ones({4}, f32));
  std::vector<std::string> lines;
  for (const auto& node : f.recorded_graph())
    if (!node.source().empty()) lines.emplace_back(node.source());
  CHECK(lines == std::vector<std::string>{"model.py:7", "model.py:7", "model.py:9"});  // the literal, add, mul
  CHECK_THROWS_WITH(f(Array::ones({4}, f32), Array::ones({3}, f32)), Contains("Recorded at model.py:9."));
}

TEST_CASE("arguments have the names given by another language", "[binding]") {
  const auto f = compile([](Tensor x, Tensor n, Tensor w) {
    detail::name_argument(x, "pixels");
    detail::name_argument(n, "count");  // a number is not an input
    detail::name_argument(w, "p.w");
    const Tensor y = x * n;
    detail::name_argument(y, "product");  // a computed value is not an input
    return y + w;
  });
  f(Array::ones({4}, f32), 2, Array::ones({4}, f32));
  std::vector<std::string> names;
  for (const auto& node : f.recorded_graph().inputs()) names.emplace_back(node.name());
  CHECK(names == std::vector<std::string>{"pixels", "p.w"});
  CHECK_THAT(f.recorded_graph().text(), Contains("input pixels :") && Contains("input \"p.w\" :") && !Contains("product"));
  CHECK_THROWS_WITH(f(Array::ones({4}, f32), 2, Array::ones({3}, f32)), Contains("p.w f32[3]"));
}

TEST_CASE("a C++ operator keeps its own line among those of another language", "[binding]") {
  const auto f = compile([](Tensor x) {
    detail::recorded_at("model.py", 3);
    return exp(x);
  });
  f(Array::ones({4}, f32));
  std::string line;
  for (const auto& node : f.recorded_graph())
    if (node.op() == "exp") line = node.source();
  CHECK_THAT(line, Contains("test_binding.cpp:"));
}

TEST_CASE("an index as a list equals one in braces", "[binding]") {
  const auto listed = compile([](Tensor x) {
    const std::vector<Index> indices{Index(Ellipsis), Index(NewAxis), Index(Range{{}, {}, 2}), Index(-1)};
    return detail::index(x, indices);
  });
  const auto braced = compile([](Tensor x) { return x[{Ellipsis, NewAxis, Range{{}, {}, 2}, -1}]; });
  const Array x = Array::from<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3, 2});
  const Array a = listed(x), b = braced(x);
  CHECK(std::vector<std::int64_t>(a.shape().begin(), a.shape().end()) == std::vector<std::int64_t>{2, 1, 2});
  CHECK(a.to_vector<float>() == std::vector<float>{1, 5, 7, 11});
  CHECK(a.to_vector<float>() == b.to_vector<float>());
  CHECK_THROWS_AS(compile([](Tensor t) { return detail::index(t, std::vector<Index>{Index(2)}); })(x), IndexError);
}

TEST_CASE("results have names by key", "[binding]") {
  const auto record = [](void*, detail::TensorReader& in, detail::ResultWriter& out) {
    CHECK(in.leaves_left() == 2);
    CHECK(in.notes_left() == 0);
    const Tensor x = in.leaf(), w = in.leaf();
    in.finish();
    out.enter("loss");
    out.leaf(x * w);
    out.leave();
    out.enter("rest");
    out.enter(1, true);
    out.leaf(x + w);
    out.leave();
    out.leave();
    CHECK(out.names() == std::vector<std::string>{"out.loss", "out.rest[1]"});
  };
  const detail::FunctionCore core(detail::Shared<void>(detail::Shared<int>::make(0)), sizeof(int), record, {});
  const Array x = Array::from<float>({1, 2}), w = Array::from<float>({3, 4});
  const detail::CallArgument arguments[] = {detail::CallArgument(x), detail::CallArgument(w)};
  detail::ResultReader results;
  core.call(arguments, {}, true, results);
  CHECK(results.names() == std::vector<std::string>{"out.loss", "out.rest[1]"});
  const std::vector<Array> arrays = std::move(results).arrays();
  REQUIRE(arrays.size() == 2);
  CHECK(arrays[0].to_vector<float>() == std::vector<float>{3, 8});
  CHECK(arrays[1].to_vector<float>() == std::vector<float>{4, 6});
}

TEST_CASE("DLPack 1.0 marks read-only tensors", "[binding]") {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Array read_only = Array::wrap(std::span<const float>(values), {2, 3}).transpose();
  DLManagedTensorVersioned* const tensor = read_only.to_dlpack_versioned();
  CHECK(tensor->version.major == 1);
  CHECK(tensor->flags == 1);
  CHECK(tensor->dl_tensor.data == values.data());
  CHECK(tensor->dl_tensor.strides[0] == 1);
  const Array back = Array::from_dlpack_versioned(tensor);
  CHECK(back.is_read_only());
  CHECK(back.data() == values.data());
  CHECK(back.to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});

  const Array writable = Array::ones({3}, f64);
  DLManagedTensorVersioned* const other = writable.to_dlpack_versioned();
  CHECK(other->flags == 0);
  other->version.major = 2;
  CHECK_THROWS_WITH(Array::from_dlpack_versioned(other), Contains("DLPack version 2.0"));
  other->version.major = 1;  // the test still owns the tensor
  CHECK_FALSE(Array::from_dlpack_versioned(other).is_read_only());
  CHECK_THROWS_WITH(Array::from_dlpack_versioned(nullptr), Contains("the tensor pointer is null"));
}
