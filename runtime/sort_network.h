// Sorts short rows together: each lane of the vectors holds a row, and a sorting network compares whole vectors. It has no branches on
// values. routine_sort.cpp calls it; sort_network_*.cpp are compiled once for each instruction set.
#pragma once

#include <cstdint>

#include "compiler/target.h"
#include "onepass/dtype.h"

namespace onepass::runtime {

struct SortSizes {
  DType type;
  bool places;  // positions are sorted, not values
  std::int64_t rows, length, results;
  bool few() const { return results <= 1024 && results * 16 <= length; }  // few results for each row
};
/// True if a network sorts faster than the other methods.
bool network_pays(const SortSizes& sizes, const compiler::Target& target);

/// Rows to sort together: at most sort_network_rows().
struct NetworkRows {
  const void* x;
  void* result;
  const std::int64_t *from, *to;  // offsets of the rows in elements
  std::int64_t count, length, results, x_step, result_step;
  bool backwards;
  void* memory;  // sort_network_bytes() bytes, aligned to 64
};
using SortNetwork = void (*)(const NetworkRows& rows);

/// Returns the network for values of `type`, or for their positions.
SortNetwork sort_network(DType type, bool places, const compiler::Target& target);
std::int64_t sort_network_rows(DType type, bool places);  // rows sorted together
std::int64_t sort_network_bytes(DType type, bool places, std::int64_t length);
std::int64_t sort_network_work(DType type, bool places);  // for one element, as ScheduleNumbers::work

SortNetwork sort_network_avx512(DType type, bool places);
SortNetwork sort_network_avx2(DType type, bool places);
SortNetwork sort_network_baseline(DType type, bool places);

}  // namespace onepass::runtime
