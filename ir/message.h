// The texts of messages: no longer than a reader wants them, whatever names, paths and lists they quote. Called by the constructor of Error,
// so that every error is formed here, and by whoever prints a text of unknown length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onepass {

/// An Error's text has at most so many bytes; with what a program puts around it a message stays below 2 kB.
inline constexpr std::size_t kMostErrorBytes = 1900;

/// The text in at most `most` bytes (16 or more). Where it has more, its longest words (names, paths: what stands between white space) lose
/// their middles to `…`; where a text of short words is too long, it loses its own. Control characters other than tab and newline become `?`.
/// Code points stay whole.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace onepass
