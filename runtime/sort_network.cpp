// See sort_network.h.
#include "runtime/sort_network.h"

#include <algorithm>

namespace onepass::runtime {

namespace {

// Bytes of a sorted element. Positions of 64-bit values have an array for the keys and one for the positions.
std::int64_t element_bytes(DType type, bool places) { return static_cast<std::int64_t>(size_of(type)) * (places ? 2 : 1); }

// Returns the length from which other methods are faster. Vectors of 16 bytes compare 64-bit elements slowly, in SSE2 not at all.
std::int64_t longest_row(const SortSizes& s, bool wide) {
  const std::size_t size = size_of(s.type);
  const bool few = s.few();
  if (!s.places) return wide || size < 8 ? 1024 : 512;
  if (size == 1) return 256;  // a position has 8 bits
  if (size == 8) return !wide ? 0 : few ? 128 : 512;
  if (wide) return few ? 512 : 1024;
  if (size == 4) return few ? 64 : 128;
  return few ? 256 : 1024;
}

}  // namespace

bool network_pays(const SortSizes& s, const compiler::Target& target) {
  const bool wide = target.has_avx2();
  if (s.length > longest_row(s, wide)) return false;
  const std::int64_t rows = sort_network_rows(s.type, s.places);
  // With few rows, the others read a row only once, or sort bytes by counting them.
  if (s.few() && s.length > 64 && s.rows < rows / 2) return false;
  return wide || size_of(s.type) > 1 || s.rows >= rows / 8;
}

SortNetwork sort_network(DType type, bool places, const compiler::Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return sort_network_avx512(type, places);
  if (target.has_avx2()) return sort_network_avx2(type, places);
#endif
  static_cast<void>(target);
  return sort_network_baseline(type, places);
}
std::int64_t sort_network_rows(DType type, bool places) { return 64 / std::min<std::int64_t>(element_bytes(type, places), 8); }
std::int64_t sort_network_bytes(DType type, bool places, std::int64_t length) {
  return element_bytes(type, places) * sort_network_rows(type, places) * ((length + 15) / 16 * 16);
}
std::int64_t sort_network_work(DType type, bool places) { return 4 * element_bytes(type, places); }

}  // namespace onepass::runtime
