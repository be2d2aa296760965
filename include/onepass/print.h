// Arrays as text, in NumPy's layout. Used by programs and the `onepass` command; <onepass/onepass.h> does not include it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "onepass/array.h"
#include "onepass/export.h"

namespace onepass {

struct PrintOptions {
  int precision = 8;         ///< the most digits after the point, at least 0; fewer where they say the element exactly
  std::int64_t most = 1000;  ///< an Array of more elements is abbreviated: the middle of each long axis becomes `...`
  std::int64_t edges = 3;    ///< elements that an abbreviated axis shows at each end
  int width = 75;            ///< columns of a line
  int indent = 0;            ///< columns before the text in its first line, such as `y = `; the other lines begin below the text
};

/// Writes the elements as NumPy's `str` does: columns of one width, brackets for axes, no newline at the end. Rank 0 is just the number.
///
///     [[1.   2.5 ]
///      [3.   0.25]]
///
/// Floats have as many digits as their type needs, bf16 too; bools are True and False. An Array of a GPU is copied to the cpu
/// first. ValueError for an Array without memory.
ONEPASS_API
std::string to_text(const Array& array, const PrintOptions& options = {});

/// The same text.
ONEPASS_API
std::ostream& operator<<(std::ostream& stream, const Array& array);

}  // namespace onepass
