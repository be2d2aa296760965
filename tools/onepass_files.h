// Files of arrays: .npy, .npz and .png are read by their first bytes, standard input too, and written by the ending of the name.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/literal.h"
#include "onepass/array.h"
#include "onepass/npy.h"
#include "runtime/os.h"
#include "runtime/os_output.h"
#include "runtime/program.h"

namespace onepass::command {

/// What an input of a program is given: elements, or a number without a strong type.
struct Input {
  std::optional<Array> array;
  compiler::Literal number;
  runtime::Argument argument() const { return {.array = array ? &*array : nullptr, .number = number}; }
};

/// The number that the whole text is, as the language writes it (`3`, `0.5`, `1e-3`, `true`, `inf`, `nan`, `pi`, `e`), with a sign or without.
/// Nothing for any other text; ValueError for an integer that does not fit 64 bits.
std::optional<compiler::Literal> literal_of(std::string_view text);

/// Reads what inputs are given. Files are opened once, standard input is read once. Errors are IoErrors that name the file.
class InputFiles {
 public:
  /// Of `file`: a number, `-`, a .npy file, a PNG picture, a .npz file's array `name` (or its only one), FILE.npz:ARRAY.
  Input load(const std::string& name, const std::string& file);
  /// The names of the arrays in a .npz file.
  std::vector<std::string> names_in(const std::string& file);

 private:
  struct Archive;
  struct Bytes {
    std::span<std::byte> bytes;
    std::shared_ptr<void> owner;
    std::shared_ptr<const Archive> archive;  // of a .npz file
  };
  const Bytes& open(const std::string& file);
  Array member(const std::string& file, const Bytes& from, const std::string& name);
  std::map<std::string, Bytes> open_;
};

/// FILE.npz:ARRAY as (FILE.npz, ARRAY); anything else as (file, "").
std::pair<std::string, std::string> split_member(const std::string& file);

/// The outputs of a job, which appear all or none: `commit` renames them. Destroyed without it, it leaves nothing behind. Several outputs may
/// go to one .npz file. What is written in place (pipes, devices, standard output) gets its bytes in `commit`, before anything is renamed.
class OutputFiles {
 public:
  explicit OutputFiles(SaveOptions options) : options_(options) {}
  /// IoError where the file cannot be written, ValueError where its format does not take the array.
  void add(const std::string& name, const std::string& file, const Array& array);
  void commit();

 private:
  struct Output {
    os::AtomicFile file;
    std::vector<std::pair<std::string, Array>> arrays;  // with their names: several in a .npz file alone
    bool written = false;
  };
  static void write(Output& output);
  SaveOptions options_;
  std::vector<Output> outputs_;
};

// ---- formats

/// A member of a .zip file: its bytes in place, or unpacked.
struct ZipMember {
  std::string name;
  std::uint64_t header = 0, stored = 0, size = 0;  // where its header is; its bytes in the file, and unpacked
  std::uint32_t crc = 0;
  std::uint16_t method = 0, flags = 0;
};
std::vector<ZipMember> zip_members(const std::string& path, std::span<const std::byte> bytes);
std::pair<std::span<std::byte>, std::shared_ptr<void>> zip_read(const std::string& path, std::span<std::byte> bytes,
                                                                const std::shared_ptr<void>& owner, const ZipMember& member);
/// A .npz file of these arrays, not compressed, as numpy.savez writes it. Elements begin at multiples of 64 bytes of the file.
void npz_write(os::AtomicFile& file, std::span<const std::pair<std::string, Array>> arrays);

/// The picture as u8, or u16 where it has 16 bits, of [height, width] for greys without alpha, else [height, width, 2 to 4].
Array png_read(const std::string& path, std::span<const std::byte> bytes);
/// u8, u16 or bool (0 and 255) of [height, width] or [height, width, 1 to 4]; ValueError naming the output for others.
void png_check(const std::string& name, const Array& array);
void png_write(os::AtomicFile& file, const Array& array);

}  // namespace onepass::command
