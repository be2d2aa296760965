// Arrays as text, in NumPy's layout. Programs and the `onepass` command use it; <onepass/onepass.h> does not include it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "onepass/array.h"
#include "onepass/export.h"

namespace onepass {

struct PrintOptions {
  int precision = 8;         ///< maximum digits after the point, at least 0; fewer if they represent the element exactly
  std::int64_t most = 1000;  ///< an Array with more elements is abbreviated: `...` replaces the middle of each long axis
  std::int64_t edges = 3;    ///< elements at each end of an abbreviated axis
  int width = 75;            ///< columns of a line
  int indent = 0;            ///< columns before the text in its first line, such as `y = `; later lines are aligned with the text
};

/// Formats the elements like NumPy's `str`: columns of one width, brackets for axes, no newline at the end. Rank 0 is just the number.
///
///     [[1.   2.5 ]
///      [3.   0.25]]
///
/// Floats have as many digits as their type needs, including bf16; bools are True and False. An Array on a GPU is copied to the CPU
/// first. Throws ValueError for an Array without memory.
ONEPASS_API
std::string to_text(const Array& array, const PrintOptions& options = {});

/// Writes to_text(array) to the stream.
ONEPASS_API
std::ostream& operator<<(std::ostream& stream, const Array& array);

}  // namespace onepass
