// Limits the length of message texts, whatever names, paths and lists they quote. Called by the constructor of Error, so that it applies to
// every error, and by code that prints a text of unknown length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onepass {

/// Maximum length of an Error's text in bytes. With text that a program adds around it, a message stays below 2 kB.
inline constexpr std::size_t kMostErrorBytes = 1900;

/// Returns the text in at most `most` bytes (16 or more). If it is too long, its longest words (separated by white space) are abbreviated
/// in the middle with `…`. If it has only short words, the middle of the whole text is abbreviated. Control characters other than tab and
/// newline become `?`. Code points stay whole.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace onepass
