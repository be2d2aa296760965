// Random default inputs: floats uniform on [-1, 1), integers and bool 0 or 1, the same in every run. `bench` uses them, and `run` uses them
// for a dump.
#pragma once

#include <cstdint>

#include "onepass/array.h"
#include "runtime/program.h"

namespace onepass::command {

// SplitMix64 (Steele, Lea and Flood 2014), with a fixed seed.
class Random {
 public:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  double symmetric() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1; }  // uniform on [-1, 1)

 private:
  std::uint64_t state_ = 1;
};

Array random_array(const runtime::ArgumentType& type, Random& random);

}  // namespace onepass::command
