// Targets constructed from parameters. `host`, which queries the system, is in runtime/target.cpp.
#include "compiler/target.h"

#include <string_view>

#include <fmt/format.h>

#include "onepass/error.h"

namespace onepass::compiler {

Target Target::generic_cpu() {
  Target t;
  t.triple = "x86_64-unknown-linux-gnu";
  t.cpu = "x86-64-v3";
  t.vector_bytes = 32;
  t.l1_bytes = 32 << 10;
  t.l2_bytes = 512 << 10;
  t.llc_bytes = 16 << 20;
  t.cores = 2;
  return t;
}

bool Target::converts_f16() const {
  if (!triple.starts_with("x86_64")) return true;
  bool has = cpu == "x86-64-v3" || cpu == "x86-64-v4";
  for (std::string_view rest = features; !rest.empty();) {  // the last occurrence counts
    const std::size_t comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view{} : rest.substr(comma + 1);
    if (one.substr(1) == "f16c") has = one[0] == '+';
  }
  return has;
}

// Narrower vectors remove only the features of wider registers. fma stays, although it is an AVX instruction, because results depend on it.
Target Target::with_vector_bytes(int bytes) const {
  if (bytes != 16 && bytes != 32 && bytes != 64) throw ValueError(fmt::format("vector_bytes: {} is not 16, 32 or 64", bytes));
  Target t = *this;
  if (bytes == vector_bytes) return t;
  t.vector_bytes = bytes;
  if (!triple.starts_with("x86_64")) return t;
  std::string kept;  // the features that do not depend on width
  for (std::string_view rest = features; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view{} : rest.substr(comma + 1);
    if (one.substr(0, 1) == "-" || one.substr(1).starts_with("avx512") || one.substr(1) == "avx2") continue;
    kept += (kept.empty() ? "" : ",") + std::string(one);
  }
  const char* const width = bytes == 64   ? "+avx2,+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd"
                            : bytes == 32 ? "+avx2,-avx512f"
                                          : "+avx,+fma,+f16c,-avx2,-avx512f";
  t.cpu = bytes == 64 ? "x86-64-v4" : "x86-64-v3";
  t.features = kept.empty() ? width : kept + "," + width;
  return t;
}

}  // namespace onepass::compiler
