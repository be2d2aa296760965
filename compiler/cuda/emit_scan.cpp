// Scans along the last loop.
#include "compiler/cuda/emitter.h"

#include <fmt/format.h>

#include "ir/order.h"

namespace onepass::compiler::cuda {

using ir::Op;

std::vector<std::uint32_t> DeviceEmitter::scan_statements() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Scan) out.push_back(i);
  return out;
}

void DeviceEmitter::end_of_scan_block(Scope& scope, std::uint32_t id, const char* lanes, const char* element) const {
  const Statement& s = nest_.body[id];
  scope.line(fmt::format("{0}base{1}{2} = {3}::combine<{4}>(base{1}{2}, carry{1}{2});", lanes, id, element, functor(s), type(s.dtype)));
  scope.line(fmt::format("{0}carry{1}{2} = {3}::identity<{4}>();", lanes, id, element, functor(s), type(s.dtype)));
}

// Writes scans. A half-warp processes a row, 16 elements at a time, which are one group of the scan. Split scans use three launches, with a
// half-warp per block of 4,096 elements. The first launch writes the block sums. The second launch, with one thread per row, turns them
// into the bases of the blocks. The third launch computes the results.
void DeviceEmitter::scans() {
  kernel_.line("const int t = threadIdx.x % 16;");
  kernel_.line(fmt::format("const Index rows = {}, count = {};", product(0, nest_.outer), extent(nest_.vector_loop())));
  const std::vector<std::uint32_t> scans = scan_statements();
  const auto identities = [&](Scope& scope, const char* what) {
    for (std::uint32_t id : scans)
      scope.line(fmt::format("{0} {1}{2} = {3}::identity<{0}>();", type(nest_.body[id].dtype), what, id, functor(nest_.body[id])));
  };
  const auto groups = [&](Scope& scope, const std::string& first, const std::string& end, bool results) {
    scope.line("#pragma unroll 4");
    block(scope, fmt::format("for (Index group = {}; group < {}; group += {})", first, end, ir::kScanGroup), [&](Scope& step) {
      step_ = &step;
      step.line("const Index j = group + t;");
      step.line("const int n = j < count ? 1 : 0;");
      if (results) stores(step, 0);
      else
        for (std::uint32_t id : scans) define(id);
      step_ = nullptr;
    });
  };
  const char* const teams =
      "for (Index work = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 16; work < {}; work += Index(gridDim.x) * blockDim.x / 16)";
  const auto ends_of = [&](Scope& scope, const char* from) {
    scope.line(fmt::format("const Index end = {0} + {1} < count ? {0} + {1} : count;", from, ir::kScanBlock));
  };
  if (!schedule_.split) {
    block(kernel_, fmt::format(fmt::runtime(teams), "rows"), [&](Scope& item) {
      item_ = &item;
      indices(item, 0, nest_.outer, "work");
      identities(item, "base");
      block(item, fmt::format("for (Index first = 0; first < count; first += {})", ir::kScanBlock), [&](Scope& one) {
        identities(one, "carry");
        ends_of(one, "first");
        groups(one, "first", "end", true);
        for (std::uint32_t id : scans) end_of_scan_block(one, id, "", "");
      });
    });
    return;
  }
  kernel_.line(fmt::format("const Index parts = pieces(count, {});", ir::kScanBlock));
  const auto sum_at = [&](std::size_t k, const char* of) {
    return fmt::format("w.memory[{}] + 8ll * (({}) * (long long){} + {})", words_.shared, of, scans.size(), k);
  };
  for (const int phase : {0, 2})
    block(kernel_, fmt::format("if (w.at[{}] == {})", words_.phase, phase), [&](Scope& launch) {
      block(launch, fmt::format(fmt::runtime(teams), "rows * parts"), [&](Scope& item) {
        item_ = &item;
        item.line(fmt::format("const Index row = work / parts, first = work % parts * {};", ir::kScanBlock));
        indices(item, 0, nest_.outer, "row");
        identities(item, "carry"), identities(item, "base");
        if (phase == 2)
          for (std::size_t k = 0; k < scans.size(); ++k)
            item.line(fmt::format("base{} = load<{}>({});", scans[k], type(nest_.body[scans[k]].dtype), sum_at(k, "work")));
        ends_of(item, "first");
        groups(item, "first", "end", phase == 2);
        if (phase == 0)
          for (std::size_t k = 0; k < scans.size(); ++k)
            item.line(fmt::format("if (t == 0) store<{}>({}, carry{});", type(nest_.body[scans[k]].dtype), sum_at(k, "work"), scans[k]));
      });
    });
  block(kernel_, fmt::format("if (w.at[{}] == 1)", words_.phase), [&](Scope& launch) {
    block(launch, "for (Index row = Index(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += Index(gridDim.x) * blockDim.x)",
          [&](Scope& item) {
            identities(item, "base");
            item.line("#pragma unroll 8");
            block(item, "for (Index part = 0; part < parts; ++part)", [&](Scope& one) {
              for (std::size_t k = 0; k < scans.size(); ++k) {
                const std::string_view dtype = type(nest_.body[scans[k]].dtype);
                const std::string at = sum_at(k, "row * parts + part");
                one.line(fmt::format("const {} sum{} = load<{}>({});", dtype, k, dtype, at));
                one.line(fmt::format("store<{}>({}, base{});", dtype, at, scans[k]));
                one.line(fmt::format("base{0} = {1}::combine<{2}>(base{0}, sum{3});", scans[k], functor(nest_.body[scans[k]]), dtype, k));
              }
            });
          });
  });
}

}  // namespace onepass::compiler::cuda
